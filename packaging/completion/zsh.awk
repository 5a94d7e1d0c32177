# SPDX-License-Identifier: GPL-2.0-only
# The table of options (godwit --options) as functions of zsh: _godwit_commands sets entries for
# _describe, and _godwit_options, for a command, specifications for _arguments.
BEGIN { FS = "\t" }

# In single quotes.
function quoted(s)
{
	gsub(/'/, "'\\''", s)
	return "'" s "'"
}

function escaped(s)
{
	gsub(/\[|\]|:|\\/, "\\\\&", s)
	return s
}

function action(value, words,    w)
{
	w = words
	gsub(/\|/, " ", w)
	if (value && words)
		return "_values -s , " value " " w
	if (words)
		return "(" w ")"
	if (value ~ /^(SOCKET|PATH|FILE|RUN|DIR)/)
		return "_files"
	if (value == "PID")
		return "_pids"
	if (value == "NAME")
		return "{compadd -- ${(f)\"$(virsh -q list --name 2>/dev/null)\"}}"
	return " "
}

function spec(name, other)
{
	value = $4 ? $4 : $5 ? "value" : ""
	return "\n\t\t" quoted((other ? "(" other ")" : "") name "[" escaped($9) "]" \
		(value ? ":" escaped(value) ":" action($4, $5) : ""))
}

$1 == "command" && $2 != "" {
	command = $2
	order[++n] = command
	commands = commands "\n\t" quoted($2 ":" escaped($3))
	if ($5 != "")
		specs[command] = "\n\t\t" quoted("*:" escaped($5) ":" action($5))
}
$1 == "option" && !n	{ commands = commands "\n\t" quoted("--" $2 ":" escaped($9)) }
$1 == "option" && n {
	specs[command] = specs[command] spec("--" $2, $3 ? "-" $3 : "")
	if ($3)
		specs[command] = specs[command] spec("-" $3, "--" $2)
}

END {
	print "_godwit_commands()\n{\n\tentries=(" commands ")\n}\n"
	print "_godwit_options()\n{\n\tcase $1 in"
	for (i = 1; i <= n; i++)
		print "\t" order[i] ") entries=(" specs[order[i]] ") ;;"
	print "\tesac\n}"
}
