# SPDX-License-Identifier: GPL-2.0-only
# docs/exit-status.md as the EXIT STATUS section of a page in mdoc: its first words, then a list of its table.
# `code` becomes bold, and its hyphens can be copied.
function text(s,    n, part, i, out)
{
	gsub(/\\/, "\\e", s)
	n = split(s, part, "`")
	for (i = 1; i <= n; i++) {
		if (i % 2 == 0) {
			gsub(/-/, "\\-", part[i])
			part[i] = "\\fB" part[i] "\\fR"
		}
		out = out part[i]
	}
	return out
}

# A line of its own for each sentence, as mdoc wants it.
function prose(s)
{
	s = text(s)
	gsub(/\. /, ".\n", s)
	print "\\&" s
}

function sentence(s)
{
	if (s ~ /^[a-z]+[ ,]/)		# no file's name
		s = toupper(substr(s, 1, 1)) substr(s, 2)
	if (s)
		prose(s ".")
}

/^#/ || /^$/ || /^\|-/	{ next }
!/^\|/			{ prose($0); next }
!list++			{ print ".Bl -tag -width Ds"; next }	# the table's head
{
	split($0, cell, / *\| */)
	print ".It Sy " cell[2] " Pq " cell[3]
	sentence(cell[4])
	sentence(cell[5])
}
END			{ print ".El" }
