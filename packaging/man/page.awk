# SPDX-License-Identifier: GPL-2.0-only
# page.awk -v command=NAME -v statuses=FILE OPTIONS PAGE: a manual page in mdoc, where the table of
# options (godwit --options) and the list of exit statuses replace the comments "... here".
# command: empty for godwit.1.
BEGIN { FS = "\t" }

FNR == NR && /^\t/	{ if (mine) more[n] = more[n] substr($0, 2) "\n"; next }
FNR == NR && $1 == "command" {
	mine = $2 == command
	if (mine) {
		summary = $3
		usage = $4
	}
	if ($2 != "") {
		names[++commands] = $2
		summaries[commands] = $3
	}
	next
}
FNR == NR		{ if (mine) row[++n] = $0; next }

/^\.\\" summary comes here/	{ print ".Nd " summary; next }
/^\.\\" synopsis comes here/	{ synopsis(usage); next }
/^\.\\" commands come here/	{ list_commands(); next }
/^\.\\" options come here/	{ list_options(); next }
/^\.\\" docs\/exit-status/	{ copy(statuses); next }
				{ print }

function copy(file,    line)
{
	while ((getline line <file) > 0)
		print line
}

function capital(s)
{
	return toupper(substr(s, 1, 1)) substr(s, 2)
}

# "--qmp SOCKET | --domain NAME" as macros.
function macros(s,    part, count, i, out)
{
	count = split(s, part, " ")
	for (i = 1; i <= count; i++) {
		if (part[i] ~ /^-/)
			out = out " Fl " substr(part[i], 2)
		else
			out = out (part[i] == "|" ? " " : " Ar ") tolower(part[i])
	}
	return substr(out, 2)
}

function synopsis(s,    len)
{
	print ".Nm godwit " command
	while (s != "") {
		len = s ~ /^[[(]/ ? match(s, /[])]/) : match(s "[", / *[[(]/) - 1
		if (s ~ /^[[(]/)
			print (s ~ /^\[/ ? ".Op " : ".Pq ") macros(substr(s, 2, len - 2))
		else
			print "." macros(substr(s, 1, len))
		s = substr(s, len + 1)
		sub(/^ +/, "", s)
	}
}

function list_commands(    i)
{
	print ".Bl -tag -width estimate"
	for (i = 1; i <= commands; i++)
		print ".It Cm " names[i] "\n" capital(summaries[i]) ":\n.Xr godwit-" names[i] " 1 ."
	print ".El"
}

function list_options(    i, f, open)
{
	for (i = 1; i <= n; i++) {
		split(row[i], f, "\t")
		if (f[1] == "group") {
			if (open)
				print ".El"
			if (f[2] != "Options") {
				gsub(/"/, "\\(dq", f[2])
				print ".Ss " f[2]
			}
			print ".Bl -tag -width Ds"
			open = 1
		} else {
			option(f, more[i])
		}
	}
	print ".El"
}

# f: option, name, letter, value, words, default, least, most, help
function option(f, rest,    words, text)
{
	words = f[5]
	gsub(/\|/, " | ", words)
	print ".It Fl " (f[3] ? f[3] " , " : "") "-" f[2] \
		(f[4] ? " Ar " tolower(f[4]) : words ? " Cm " words : "")
	text = f[9]
	if (f[4] && words) {
		gsub(/ \| /, ", ", words)
		sub(/, [^,]*$/, " or" substr(words, match(words, / [^ ]*$/)), words)
		text = text ": " words ", or several of them separated by commas"
	}
	sentence(text, f[4], "|" f[5] "|")
	printf "%s", rest
	limits(f)
}

function limits(f)
{
	if (f[6] != "" && f[5])
		print "The default is\n.Cm " f[6] " ."
	else if (f[6] != "")
		print "The default is " f[6] (f[8] ? ", the range " f[7] " to " f[8] : "") "."
	else if (f[8])
		print "The range is " f[7] " to " f[8] "."
}

# A clause of a help text as a sentence: what stands for the value, words, options and pages become
# macros.
function sentence(s, value, words,    part, count, i, word, mark, line)
{
	count = split(s ".", part, " ")
	for (i = 1; i <= count; i++) {
		word = part[i]
		mark = ""
		while (match(word, /[,;:.]$/)) {
			mark = " " substr(word, RSTART) mark
			word = substr(word, 1, RSTART - 1)
		}
		if (word == "\"godwit" && part[i + 1] ~ /^[a-z]+"/) {
			match(part[++i], /"/)
			word = ".Xr godwit-" substr(part[i], 1, RSTART - 1) " 1"
			mark = RSTART < length(part[i]) ? " " substr(part[i], RSTART + 1) : ""
		} else if (word == value)
			word = ".Ar " tolower(word)
		else if (index(words, "|" word "|") && (value || mark == " :"))
			word = ".Cm " word
		else if (word ~ /^-/)
			word = ".Fl " substr(word, 2)
		else if (word ~ /^[a-z]+\([0-9]\)$/)
			word = ".Xr " substr(word, 1, length(word) - 3) " " \
				substr(word, length(word) - 1, 1)
		else {
			line = line (line ? " " : "") (i == 1 ? capital(part[i]) : part[i])
			continue
		}
		put(line)
		line = ""
		print word mark
	}
	put(line)
}

function put(line)
{
	if (line)
		print (line ~ /^[.']/ ? "\\&" : "") line
}
