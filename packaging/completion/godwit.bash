# SPDX-License-Identifier: GPL-2.0-only
# bash completion for godwit(1), out of what its own --help says: no list here that could be out of date.

# The first word of each line of a help text that describes a command or an option, with what stands there for its value:
# "--io auto|uring|poll".
_godwit_help()
{
	"$@" --help 2>/dev/null | sed -n 's/^  \(-[a-z], \)\?\(-\{0,2\}[a-z][a-z-]*\( [^ ]\+\)\?\)\(  .*\)\?$/\2/p'
}

_godwit()
{
	local cur prev words cword help value
	_init_completion -n : || return

	if ((cword == 1)); then
		COMPREPLY=($(compgen -W "$(_godwit_help "${words[0]}" | cut -d' ' -f1) --help --version" -- "$cur"))
		return
	fi
	help=$(_godwit_help "${words[0]}" "${words[1]}")
	value=$(awk -v option="$prev" '$1 == option { print $2 }' <<<"$help")
	case $value in
	SOCKET | PATH | FILE*)
		_filedir ;;
	DIR)
		_filedir -d ;;
	PID)
		COMPREPLY=($(compgen -W "$(pgrep -f '^[^ ]*(qemu-system|kvm)')" -- "$cur")) ;;
	NAME)
		COMPREPLY=($(compgen -W "$(virsh -q list --name 2>/dev/null)" -- "$cur")) ;;
	*\|*)
		COMPREPLY=($(compgen -W "${value//|/ }" -- "$cur")) ;;
	'')
		if [[ $cur == -* ]]; then
			COMPREPLY=($(compgen -W "$(cut -d' ' -f1 <<<"$help") --help" -- "$cur"))
		elif "${words[0]}" "${words[1]}" --help 2>/dev/null | head -n 1 | grep -q '\.json$'; then
			_filedir
		fi ;;
	esac
} &&
	complete -F _godwit godwit
