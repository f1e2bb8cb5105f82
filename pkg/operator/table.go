package operator

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is what is printed in a frame.
type table struct {
	header []string
	rows   [][]string
}

// printTable draws a frame like calicoctl's: headers centred, numbers to the
// right, text to the left.
func printTable(w io.Writer, t table) error {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	rule := "+"
	for _, width := range widths {
		rule += strings.Repeat("-", width+2) + "+"
	}
	rule += "\n"
	out.WriteString(rule)
	line(&out, t.header, widths, centred)
	out.WriteString(rule)
	for _, row := range t.rows {
		line(&out, row, widths, aligned)
	}
	out.WriteString(rule)
	_, err := io.WriteString(w, out.String())
	return err
}

func line(out *strings.Builder, cells []string, widths []int, place func(cell string, room int) (left, right int)) {
	out.WriteByte('|')
	for i, cell := range cells {
		left, right := place(cell, widths[i]-utf8.RuneCountInString(cell))
		out.WriteString(strings.Repeat(" ", left+1) + cell + strings.Repeat(" ", right+1) + "|")
	}
	out.WriteByte('\n')
}

func centred(_ string, room int) (left, right int) { return room / 2, room - room/2 }

// aligned puts counts to the right.
func aligned(cell string, room int) (left, right int) {
	number, _, _ := strings.Cut(cell, " (")
	if number != "" && strings.Trim(number, "0123456789") == "" {
		return room, 0
	}
	return 0, room
}
