package netconf

import "strings"

// maxEdits is how far a key may be from a known one to be taken for a
// misspelling of it.
const maxEdits = 2

// nearest is the first of the known keys that is nearest to key, or "" if none
// is near enough. A key that would have to change entirely is not near.
func nearest(key string, known []string) string {
	best, bestEdits := "", maxEdits+1
	for _, name := range known {
		if edits := editDistance(strings.ToLower(key), strings.ToLower(name)); edits < bestEdits && edits < len(name) {
			best, bestEdits = name, edits
		}
	}
	return best
}

// editDistance is the number of insertions, deletions and replacements that
// turn a into b, counted in bytes, or anything over maxEdits if it is over.
func editDistance(a, b string) int {
	if diff := len(a) - len(b); diff > maxEdits || diff < -maxEdits {
		return maxEdits + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
