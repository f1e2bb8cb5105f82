package installer

// supportsDSR decides by the build and revision of Windows whether services may
// answer pods of their own node directly (Windows data plane contract 11).
func supportsDSR(build, revision uint64) bool {
	return build >= 18317 || build == 17763 && revision >= 1432
}
