package cnierr

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Code is a CNI error code. 1-99 belong to the CNI specification, 100 and 999
// to its Go library and the reference implementation, 101-118 are ours and are
// listed with cause and remedy in docs/errors.md.
type Code uint

// Codes of the CNI specification (1.1.0, "Error").
const (
	UnsupportedVersion   Code = 1
	UnsupportedField     Code = 2
	InvalidEnvironment   Code = 4
	InputOutput          Code = 5
	Undecodable          Code = 6
	InvalidConfiguration Code = 7
	OwnNamespace         Code = 8
	TryAgainLater        Code = 11
	NotAvailable         Code = 50
	LimitedConnectivity  Code = 51
	Startup              Code = 100
	Unclassified         Code = 999
)

// Codes of our own, stable for ever.
const (
	NoPool               Code = 101
	AddressesExhausted   Code = 102
	BlockLimit           Code = 103
	AddressTaken         Code = 104
	AddressOutsidePools  Code = 105
	StrictAffinityNeeded Code = 106
	InvalidAnnotation    Code = 107
	NodeUnknown          Code = 108
	LockNotObtained      Code = 109
	HNSRefused           Code = 110
	NetlinkRefused       Code = 111
	DrainNeeded          Code = 112
	DatastoreRefused     Code = 113
	Internal             Code = 114
	CheckFailed          Code = 115
	NameTaken            Code = 116
	NotOnWindows         Code = 117
	Overtaken            Code = 118
)

// Error is an error with a CNI code. Its text says what failed, on which
// object, why and what to do, in one sentence.
type Error struct {
	Code    Code
	Msg     string
	Details string
	err     error
}

// New returns an error with the given code; format and args are those of
// fmt.Errorf, so %w keeps the cause reachable.
func New(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), err: err}
}

// Wrap gives err a code unless it already carries one; a nil err stays nil.
func Wrap(code Code, err error, doing string) error {
	if err == nil {
		return nil
	}
	if c, ok := find(err); ok {
		code = c
	}
	return &Error{Code: code, Msg: doing + ": " + err.Error(), err: err}
}

func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.err }

// CodeOf returns the code of the outermost coded error in err's chain, also of
// an error object that an executed plugin printed, and Unclassified if there
// is none.
func CodeOf(err error) Code {
	if c, ok := find(err); ok {
		return c
	}
	return Unclassified
}

func find(err error) (Code, bool) {
	var own *Error
	if errors.As(err, &own) {
		return own.Code, true
	}
	var cni *types.Error
	if errors.As(err, &cni) {
		return Code(cni.Code), true
	}
	return 0, false
}

// object is the error object of the CNI specification. The library's own type
// has no cniVersion member, which the specification wants.
type object struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

// Printed is err as a caller of the executable reads it. Several errors that
// were joined are one line.
func Printed(err error) *types.Error {
	return &types.Error{
		Code: uint(CodeOf(err)), Msg: strings.ReplaceAll(err.Error(), "\n", "; "), Details: detailsOf(err),
	}
}

// detailsOf are the details nearest to the outside.
func detailsOf(err error) string {
	var own *Error
	for inner := err; errors.As(inner, &own); inner = own.Unwrap() {
		if own.Details != "" {
			return own.Details
		}
	}
	var cni *types.Error
	if errors.As(err, &cni) {
		return cni.Details
	}
	return ""
}

// Print writes err to w as the error object of the CNI specification.
func Print(w io.Writer, cniVersion string, err error) error {
	printed := Printed(err)
	out := object{CNIVersion: cniVersion, Code: printed.Code, Msg: printed.Msg, Details: printed.Details}
	body, encodeErr := json.MarshalIndent(out, "", "    ")
	if encodeErr != nil {
		return fmt.Errorf("encoding the error object: %w", encodeErr)
	}
	_, writeErr := w.Write(append(body, '\n'))
	return writeErr
}
