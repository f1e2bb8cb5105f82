package embedded

// syncDirectory does nothing: NTFS journals its directories, and they cannot
// be opened for syncing.
func syncDirectory(string) error { return nil }
