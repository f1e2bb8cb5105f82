package embedded

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The beginning of a bbolt file, in the byte order of the host: two pages,
// each with a header and a meta record; the valid one with the higher
// transaction number counts.
const (
	pageHeaderSize = 16
	metaSize       = 64
	metaMagic      = 0xED0CDAED
	smallestPage   = 1 << 10
	largestPage    = 1 << 24
)

// meta is what of a meta record is needed to know how long the file must be.
type meta struct {
	pageSize    int64
	pages       int64
	transaction uint64
}

// checkLength proves that the file holds all pages that it says it has: bbolt
// maps it without looking, and to read a page behind the end is a fault.
func checkLength(handle *os.File) error {
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	newest, ok := newestMeta(handle)
	switch {
	case info.Size() == 0:
		return &damagedError{"it is empty"}
	case !ok:
		return &damagedError{"it is not a bbolt file, or both its meta pages are damaged"}
	case newest.pages*newest.pageSize > info.Size():
		return &damagedError{fmt.Sprintf("it is cut off: %d bytes of %d", info.Size(), newest.pages*newest.pageSize)}
	}
	return nil
}

func newestMeta(file io.ReaderAt) (newest meta, found bool) {
	if first, ok := readMeta(file, 0); ok {
		newest, found = first, true
		if second, ok := readMeta(file, first.pageSize); ok && second.transaction > first.transaction {
			newest = second
		}
		return newest, found
	}
	// Where the second page begins stands only in the first, or in itself.
	for size := int64(smallestPage); size <= largestPage; size *= 2 {
		if second, ok := readMeta(file, size); ok && second.pageSize == size {
			return second, true
		}
	}
	return meta{}, false
}

func readMeta(file io.ReaderAt, offset int64) (meta, bool) {
	var raw [metaSize]byte
	if _, err := file.ReadAt(raw[:], offset+pageHeaderSize); err != nil {
		return meta{}, false
	}
	order := binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(raw[:56]) // never fails
	m := meta{
		pageSize:    int64(order.Uint32(raw[8:])),
		pages:       int64(order.Uint64(raw[40:])),
		transaction: order.Uint64(raw[48:]),
	}
	valid := order.Uint32(raw[:]) == metaMagic && order.Uint64(raw[56:]) == sum.Sum64() &&
		m.pageSize >= smallestPage && m.pageSize <= largestPage && m.pages >= 0 && m.pages < 1<<40
	return m, valid
}
