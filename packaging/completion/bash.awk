# SPDX-License-Identifier: GPL-2.0-only
# The table of options (godwit --options) as a function of bash: for a command, or '' for godwit
# itself, a line for each word that may come, with what stands for its value: "--qmp SOCKET",
# "--io auto|poll", "--accept ,cpu|memory" where several may be given, "operand RUN.json".
BEGIN { FS = "\t"; print "_godwit_options()\n{\n\tcase $1 in" }

function line(s)
{
	lines[command] = lines[command] " \\\n\t\t\t'" s "'"
}

$1 == "command" {
	order[++n] = command = $2
	if ($2 != "")
		lines[""] = lines[""] " \\\n\t\t\t'" $2 "'"
	if ($5 != "")
		line("operand " $5)
}
$1 == "option" {
	value = $4 && $5 ? " ," $5 : $4 ? " " $4 : $5 ? " " $5 : ""
	line("--" $2 value)
	if ($3 != "")
		line("-" $3 value)
}

END {
	for (i = 1; i <= n; i++)
		print "\t'" order[i] "')\n\t\tprintf '%s\\n'" lines[order[i]] " ;;"
	print "\tesac\n}"
}
