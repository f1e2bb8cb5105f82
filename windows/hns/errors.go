package hns

import (
	"errors"
	"fmt"
)

// ErrLockHeld means that another process kept the network lock for the whole
// wait.
var ErrLockHeld = errors.New("held by another process")

// Code is an error code of the service: an HRESULT of facility 0x3B, or the
// number of a Win32 error.
type Code uint32

// The codes that something is decided by, or that the simulator returns.
const (
	NetworkNotFound       Code = 0x803B0001
	EndpointNotFound      Code = 0x803B0002
	NoUsableAdapter       Code = 0x803B0006
	UnknownNetworkType    Code = 0x803B000B
	InvalidPolicy         Code = 0x803B000D
	UnknownPolicyType     Code = 0x803B000E
	RemoteEndpoint        Code = 0x803B000F
	NetworkNameInUse      Code = 0x803B0010
	PolicyAlreadyPresent  Code = 0x803B0012
	RequestUnsupported    Code = 0x803B0015
	InvalidJSON           Code = 0x803B001B
	AddressOutsideSubnets Code = 0x803B001E
	AlreadyAttached       Code = 0x803B002B
	AddressReserved       Code = 0x803B002F
	ElementNotFound       Code = 1168
	ObjectExists          Code = 5010
)

// meanings are the codes in words, for messages.
func (c Code) meaning() string {
	switch c {
	case NetworkNotFound:
		return "the network does not exist"
	case EndpointNotFound:
		return "the endpoint does not exist"
	case NoUsableAdapter:
		return "no usable network adapter"
	case UnknownNetworkType:
		return "unknown network type"
	case InvalidPolicy:
		return "the settings of a policy are invalid, or this build of Windows does not know it"
	case UnknownPolicyType:
		return "unknown policy type"
	case RemoteEndpoint:
		return "not allowed on a remote endpoint"
	case NetworkNameInUse:
		return "the network's name or isolation id is in use"
	case PolicyAlreadyPresent:
		return "the policy is present already"
	case RequestUnsupported:
		return "the request is not supported by this build of Windows"
	case InvalidJSON:
		return "the document is invalid"
	case AddressOutsideSubnets:
		return "the address is in no subnet of the network"
	case AlreadyAttached:
		return "the endpoint is in a namespace already"
	case AddressReserved:
		return "the address is reserved"
	case ElementNotFound:
		return "the element does not exist"
	case ObjectExists:
		return "the address or MAC is in use on the network"
	}
	return "see the code in Microsoft's list of HCN errors"
}

// Error is a refusal of the service.
type Error struct {
	// Call is what was asked for, Code the answer.
	Call string
	Code Code
	// Text is what the service said beside the code.
	Text string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: HRESULT 0x%08X, %s", e.Call, uint32(e.Code), e.Code.meaning())
	if e.Text != "" {
		text += " (" + e.Text + ")"
	}
	return text
}

// CodeOf is the code of the service in err's chain, 0 if there is none.
func CodeOf(err error) Code {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

// IsNotFound reports whether err says that the object asked for does not exist,
// in whatever way the service says so.
func IsNotFound(err error) bool {
	switch CodeOf(err) {
	case NetworkNotFound, EndpointNotFound, ElementNotFound:
		return true
	}
	return false
}
