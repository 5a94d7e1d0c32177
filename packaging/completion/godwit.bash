# SPDX-License-Identifier: GPL-2.0-only
# bash completion for godwit(1).

# bash.awk comes here

_godwit_words()
{
	COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

_godwit()
{
	local cur prev words cword options value several
	_init_completion -n : || return

	if ((cword == 1)); then
		_godwit_words "$(_godwit_options '')"
		return
	fi
	options=$(_godwit_options "${words[1]}")
	value=$(awk -v option="$prev" '$1 == option { print $2 }' <<<"$options")
	if [[ -z $value && $cur != -* ]]; then
		value=$(awk '$1 == "operand" { print $2 }' <<<"$options")
	fi
	case $value in
	'')
		_godwit_words "$(grep -o '^-[^ ]*' <<<"$options")" ;;
	SOCKET | PATH | FILE* | RUN* | DIR)
		_filedir ;;
	PID)
		_godwit_words "$(pgrep -f '^[^ ]*(qemu-system|kvm)')" ;;
	NAME)
		_godwit_words "$(virsh -q list --name 2>/dev/null)" ;;
	,*)
		# Several, with commas: the last one is completed.
		several=$(tr ',|' '  ' <<<"$value")
		COMPREPLY=($(compgen -P "${cur%"${cur##*,}"}" -W "$several" -- "${cur##*,}")) ;;
	*\|*)
		_godwit_words "${value//|/ }" ;;
	esac
} &&
	complete -F _godwit godwit
