package hns

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNotFound(t *testing.T) {
	t.Parallel()
	for _, code := range []Code{NetworkNotFound, EndpointNotFound, ElementNotFound} {
		if !IsNotFound(fmt.Errorf("looking up: %w", &Error{Call: "Open", Code: code})) {
			t.Errorf("0x%X is not taken as not found", uint32(code))
		}
	}
	for _, err := range []error{nil, errors.New("x"), &Error{Code: AlreadyAttached}} {
		if IsNotFound(err) {
			t.Errorf("%v is taken as not found", err)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	seen := map[string]Code{}
	for _, code := range []Code{NetworkNotFound, EndpointNotFound, NoUsableAdapter, UnknownNetworkType, InvalidPolicy, UnknownPolicyType,
		RemoteEndpoint, NetworkNameInUse, PolicyAlreadyPresent, RequestUnsupported, InvalidJSON, AddressOutsideSubnets,
		AlreadyAttached, AddressReserved, ElementNotFound, ObjectExists, 0x80070005} {
		text := (&Error{Call: "HcnX", Code: code, Text: "said"}).Error()
		if !strings.Contains(text, fmt.Sprintf("HcnX: HRESULT 0x%08X", uint32(code))) || !strings.Contains(text, "(said)") {
			t.Errorf("text %q", text)
		}
		if other, twice := seen[code.meaning()]; twice {
			t.Errorf("0x%X means the same as 0x%X", uint32(code), uint32(other))
		}
		seen[code.meaning()] = code
	}
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	const id = "0a1b2c3d-0000-1111-2222-333344445555"
	if !SameID(id, strings.ToUpper(id)) || !SameID("{"+id+"}", id) || SameID(id, "") {
		t.Error("ids are compared by spelling")
	}
	for namespace, attached := range map[string]bool{"": false, noNamespace: false, id: true} {
		if (Endpoint{HostComputeNamespace: namespace}).Attached() != attached {
			t.Errorf("namespace %q: attached is %t", namespace, !attached)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for version, enough := range map[Version]bool{{9, 2}: true, {9, 3}: true, {10, 0}: true, {9, 1}: false, {8, 9}: false} {
		if version.AtLeast(9, 2) != enough {
			t.Errorf("%v", version)
		}
	}
}
