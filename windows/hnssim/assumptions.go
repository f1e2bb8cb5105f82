package hnssim

// Assumption names a rule that real HNS was not seen to follow.
type Assumption string

// The rules that are assumed.
const (
	UniqueNetworkNames   Assumption = "unique network names"
	DistinctVSIDs        Assumption = "distinct VSIDs"
	DisjointPrefixes     Assumption = "disjoint prefixes"
	StrictPolicySettings Assumption = "strict policy settings"
)

// Assumed is a row of the table of assumptions.
type Assumed struct {
	Assumption Assumption
	Rule       string
	Reason     string
}

// Assumptions is the table; every row can be switched with Engine.Assume.
func Assumptions() []Assumed {
	return []Assumed{
		{UniqueNetworkNames, "a second network of a name is refused (0x803B0010)",
			"agents look networks up by name, and none copes with two; if real HNS allows it, only the plugin's lock prevents it"},
		{DistinctVSIDs, "two Overlay networks with one VSID are refused (0x803B0010)",
			"the switch tells networks apart by VSID; one network for each block, all with the same VNI, needs real HNS to allow it or the blocks' networks get separate ones"},
		{DisjointPrefixes, "two networks with overlapping prefixes are refused (0x803B0010)",
			"HNS routes by prefix; if real HNS allows it, replacing a network under another name is safer than assumed"},
		{StrictPolicySettings, "unknown or wrongly typed fields in a policy's Settings are refused (0x803B000D)",
			"real HNS may ignore them, and then a misspelt field silently has no effect, which is what a test must find"},
	}
}
