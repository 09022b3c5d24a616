package arrow

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// An entry is a record batch of the file, or damage in place of one.
type entry struct {
	offset   int64 // of the message
	metadata int64 // bytes of the metadata, with the prefix
	body     int64 // bytes of the body
	rows     int64
	first    int64 // number of the first row, where damage counts as no rows
	err      error // the damage, which hides an unknown number of rows; nil: there is none
}

// dictionaryEntry is a dictionary of the file, or a delta that adds values to one.
type dictionaryEntry struct {
	offset, metadata, body int64
	id                     int64
	delta                  bool
	before                 int            // number of the entry that follows
	kept                   []byte         // the message, of a file that is read once only; nil: it is read again
	memory                 *memory.Buffer // that kept is in
}

// index finds the messages of a file in order. It is extended as far as needed: a stream can only be read from its
// beginning.
type index struct {
	entries      []entry
	dictionaries []dictionaryEntry
	blocks       []block // of the record batches of a file that are not entries yet
	stream       bool    // messages follow one another from next on
	next         int64   // offset of the next message of a stream
	rows         int64   // of all entries
	ended        bool    // there are no more messages
	finished     bool    // the stream has ended, but the file has not
	damage       *entry  // the message behind it is searched for, from search on; nil: none is
	search       int64
}

// fault returns an error about bytes of the file.
func (r *records) fault(offset int64, err error) error {
	var e *pyfeed.Error
	if errors.As(err, &e) {
		if e.At != nil {
			return err
		}
		located := *e
		located.At = &pyfeed.Location{File: r.f.Path(), Offset: offset, Record: -1}
		return &located
	}
	if err == errMetadata {
		return r.f.Corrupt(offset, -1, "%v", err)
	}
	return err
}

// at returns at least n bytes of the file from an offset on, or fewer at its end.
func (r *records) at(offset int64, n int64) ([]byte, error) {
	if err := r.f.SeekTo(offset); err != nil {
		return nil, err
	}
	return r.f.Peek(int(min(n, 1<<46)))
}

// begin reads the schema, and the footer of a file.
func (r *records) begin() error {
	head, err := r.at(0, int64(len(fileMagic))+2)
	if err != nil {
		return err
	}
	switch {
	case len(head) == 0:
		return r.f.Corrupt(0, -1, "expected an Arrow file or stream, found an empty file")
	case bytes.HasPrefix(head, []byte(featherMagic)):
		return r.fault(0, pyfeed.Errorf(pyfeed.Unsupported, "expected an Arrow file or stream, found a Feather file of version 1: write version 2, which is an Arrow file"))
	case bytes.HasPrefix(head, []byte(fileMagic)):
		return r.beginFile()
	}
	return r.beginStream()
}

// maxWhole is the largest size, in bytes, of a compressed file with a footer, which is at its end: such a file is
// decompressed into memory.
const maxWhole = 1 << 30

// beginFile reads the footer.
func (r *records) beginFile() error {
	size := r.f.Size()
	if size < 0 {
		data, err := r.at(0, maxWhole+1)
		if err != nil {
			return err
		}
		if len(data) > maxWhole {
			return r.fault(0, pyfeed.Errorf(pyfeed.Unsupported, "expected a compressed file of at most %d bytes, found more: write a stream, or compress the buffers", maxWhole))
		}
		size = int64(len(data))
	}
	tail := int64(4 + len(fileMagic)) // size of the footer, and magic
	least := 8 + tail
	end, err := r.at(max(0, size-tail), tail)
	if err != nil {
		return err
	}
	if size < least || string(end[4:tail]) != fileMagic {
		return r.f.Corrupt(max(0, size-int64(len(fileMagic))), -1, "expected the end of an Arrow file, %q, found %q", fileMagic, end[min(len(end), 4):])
	}
	n := int64(int32(binary.LittleEndian.Uint32(end)))
	if n <= 0 || n > size-least || n > maxMetadata {
		return r.f.Corrupt(size-tail, -1, "expected the size of a footer in a file of %d bytes, found %d", size, n)
	}
	at := size - tail - n
	data, err := r.at(at, n)
	if err != nil {
		return err
	}
	footer, err := parseFooter(data[:n])
	if err != nil {
		return r.fault(at, err)
	}
	r.schema, r.end = footer.schema, at
	for _, b := range footer.dictionaries {
		if err := r.addDictionary(b); err != nil {
			return err
		}
	}
	r.index.blocks = footer.batches
	if r.f.InMemory() { // the numbers of rows are in the batches
		for !r.index.ended {
			if err := r.extend(); err != nil {
				return err
			}
		}
	}
	return nil
}

// addDictionary adds a dictionary that the footer lists.
func (r *records) addDictionary(b block) error {
	if err := r.f.Poll(); err != nil {
		return err
	}
	m, err := r.message(b)
	if err != nil {
		return err
	}
	if m.kind != dictionaryMessage {
		return r.f.Corrupt(b.at, -1, "expected a dictionary, as the footer says, found %s", messageNames[m.kind])
	}
	return r.noteDictionary(m, b)
}

// noteDictionary adds a dictionary.
func (r *records) noteDictionary(m message, b block) error {
	d := dictionaryEntry{offset: b.at, metadata: b.metadata, body: m.body, id: m.header.long(0), delta: m.header.bool(2), before: len(r.index.entries)}
	if m.header.b.bad {
		return r.fault(b.at, errMetadata)
	}
	if !r.f.InMemory() && (r.f.IsCompressed() || r.f.Size() < 0) { // there is no way back to it
		data, err := r.at(b.at, b.metadata+m.body)
		if err != nil {
			return err
		}
		if int64(len(data)) < b.metadata+m.body {
			return r.short(b.at, b.metadata+m.body, int64(len(data)))
		}
		d.kept, d.memory = data[:b.metadata+m.body], r.f.Hold(1)
	}
	r.index.dictionaries = append(r.index.dictionaries, d)
	return nil
}

func (r *records) short(offset, expected, found int64) error {
	return r.f.Corrupt(offset, -1, "expected a message of %d bytes, found %d", expected, found)
}

// message reads the metadata of a message that the footer lists, and checks it against the footer.
func (r *records) message(b block) (m message, err error) {
	if b.at < 8 || b.metadata < prefixBytes || b.metadata > maxMetadata || b.body < 0 || b.at > r.end || b.metadata > r.end-b.at || b.body > r.end-b.at-b.metadata {
		return m, r.f.Corrupt(r.end, -1, "expected a message before the footer, found one of %d and %d bytes at offset %d", b.metadata, b.body, b.at)
	}
	data, err := r.at(b.at, b.metadata)
	if err != nil {
		return m, err
	}
	if int64(len(data)) < b.metadata {
		return m, r.short(b.at, b.metadata, int64(len(data)))
	}
	length, size, _ := prefix(data)
	if length <= 0 || length > b.metadata-int64(size) {
		return m, r.f.Corrupt(b.at, -1, "expected metadata of at most %d bytes, found a length of %d", b.metadata-int64(size), length)
	}
	if m, err = parseMessage(data[size : int64(size)+length]); err != nil {
		return m, r.fault(b.at, err)
	}
	if m.body != b.body {
		return m, r.f.Corrupt(b.at, -1, "expected a body of %d bytes, as the footer says, found %d", b.body, m.body)
	}
	return m, nil
}

// beginStream reads the schema of a stream.
func (r *records) beginStream() error {
	r.index.stream = true
	m, b, err := r.messageAt(0)
	if err != nil {
		return err
	}
	if b.metadata == 0 {
		return r.f.Corrupt(0, -1, "expected a schema, found the end")
	}
	if m.kind != schemaMessage {
		return r.f.Corrupt(0, -1, "expected an Arrow file, which begins with %q, or a stream, which begins with a schema, found %s", fileMagic, messageNames[m.kind])
	}
	if r.schema, err = parseSchema(m.header, m.version); err != nil {
		return r.fault(0, err)
	}
	r.index.next = b.at + b.metadata + m.body
	return nil
}

// messageAt reads the metadata of the message of a stream at an offset. The metadata of the block has 0 bytes at the end.
func (r *records) messageAt(offset int64) (m message, b block, err error) {
	b.at = offset
	head, err := r.at(b.at, prefixBytes)
	if err != nil {
		return m, b, err
	}
	if len(head) == 0 { // the marker of the end is optional
		return m, b, nil
	}
	length, size, whole := prefix(head)
	if !whole {
		return m, b, r.f.Corrupt(b.at, -1, "expected the length of a message, found the end after %d bytes", len(head))
	}
	if length == 0 {
		return m, b, r.checkEnd(b.at + int64(size))
	}
	if length < 0 || length > maxMetadata || r.f.Size() >= 0 && length > r.f.Size()-b.at-int64(size) {
		return m, b, r.f.Corrupt(b.at, -1, "expected an Arrow file, or the length of a message of a stream, found %d", length)
	}
	data, err := r.at(b.at, int64(size)+length)
	if err != nil {
		return m, b, err
	}
	if int64(len(data)) < int64(size)+length {
		return m, b, r.short(b.at, int64(size)+length, int64(len(data)))
	}
	if m, err = parseMessage(data[size : int64(size)+length]); err != nil {
		return m, b, r.fault(b.at, err)
	}
	b.metadata, b.body = int64(size)+length, m.body
	if r.f.Size() >= 0 && b.body > r.f.Size()-b.at-b.metadata {
		return m, b, r.f.Corrupt(b.at, -1, "expected a body of %d bytes, found %d", b.body, r.f.Size()-b.at-b.metadata)
	}
	return m, b, nil
}

// checkEnd returns an error if something follows the end of a stream.
func (r *records) checkEnd(offset int64) error {
	rest, err := r.at(offset, 1)
	if err == nil && len(rest) > 0 {
		r.index.finished = true
		err = r.f.Corrupt(offset, -1, "expected the end of the file after the end of the stream, found more: only one stream is read")
	}
	return err
}

// extend finds the next message, and adds it to the index if it is a record batch or a dictionary. Damage becomes an
// entry. The only errors are those of the system, and storage.ErrInterrupted.
func (r *records) extend() error {
	if err := r.f.Poll(); err != nil {
		return err
	}
	x := &r.index
	if x.damage != nil { // the search was interrupted
		return r.resume()
	}
	var m message
	var b block
	var err error
	switch {
	case x.stream:
		m, b, err = r.messageAt(x.next)
		if err == nil && b.metadata == 0 {
			x.ended = true
			return nil
		}
	case len(x.entries) == len(x.blocks):
		x.ended = true
		return nil
	default:
		b = x.blocks[len(x.entries)]
		if m, err = r.message(b); err == nil && m.kind != batchMessage {
			err = r.f.Corrupt(b.at, -1, "expected a record batch, as the footer says, found %s", messageNames[m.kind])
		}
	}
	if err == nil && m.kind != batchMessage && m.kind != dictionaryMessage {
		err = r.f.Corrupt(b.at, -1, "expected a record batch or a dictionary, found %s", messageNames[m.kind])
	}
	if err == nil && m.kind == dictionaryMessage {
		err = r.noteDictionary(m, b)
		if err == nil {
			x.next = b.at + b.metadata + b.body
			return nil
		}
	}
	e := entry{offset: b.at, metadata: b.metadata, body: b.body, first: x.rows}
	if err == nil {
		if err = r.head.parse(m.header); err != nil {
			err = r.fault(b.at, err)
		}
		e.rows = r.head.rows
	}
	if err == nil && x.rows > maxRows-e.rows {
		err = r.f.Corrupt(b.at, -1, "expected at most %d rows, found more", int64(maxRows))
	}
	if err != nil {
		var damage *pyfeed.Error
		if !errors.As(err, &damage) || damage.Kind != pyfeed.Corrupt {
			return err
		}
		if torn := r.f.CheckTruncated(); torn != nil {
			return torn
		}
		e.err, e.rows = damage, 0
		if x.ended = x.finished; x.stream && !x.ended {
			x.damage, x.search = &e, b.at-b.at%8+8
			return r.resume()
		}
		x.entries = append(x.entries, e)
		return nil
	}
	x.rows += e.rows
	x.next = b.at + b.metadata + b.body
	x.entries = append(x.entries, e)
	return nil
}

// maxRows limits the rows of a file, so that their numbers never overflow.
const maxRows = 1 << 48

// resume finds the next message behind damage in a stream, and adds the damage to the index, and that at which the search
// ends. After storage.ErrInterrupted, the next call goes on.
func (r *records) resume() error {
	x := &r.index
	for {
		found, end, err := r.searchMessage()
		if err != nil {
			return err
		}
		if found || x.ended {
			x.entries = append(x.entries, *x.damage)
			if end != nil {
				x.entries = append(x.entries, entry{offset: x.search, first: x.rows, err: end})
			}
			x.damage = nil
			return nil
		}
	}
}

// searchMessage looks for a message in the data that is in memory: messages begin at multiples of 8 bytes. It moves
// search behind what is none. If nothing more can be read, end is the reason; nil: the file ends.
func (r *records) searchMessage() (found bool, end, err error) {
	if err := r.f.Poll(); err != nil {
		return false, nil, err
	}
	x := &r.index
	data, err := r.at(x.search, prefixBytes)
	var damage *pyfeed.Error
	switch {
	case errors.As(err, &damage) && damage.Kind == pyfeed.Corrupt: // of the compressed data
		x.ended = true
		return false, err, nil
	case err != nil:
		return false, nil, err
	case len(data) < prefixBytes:
		x.ended = true
		return false, nil, nil
	}
	data = data[:min(len(data), storage.PollEvery)]
	k := bytes.Index(data, []byte{0xff, 0xff, 0xff, 0xff})
	switch {
	case k < 0:
		x.search += int64(max(len(data)-3, 8) &^ 7)
		return false, nil, nil
	case k%8 > 0:
		x.search += int64(k)&^7 + 8
		return false, nil, nil
	}
	x.search += int64(k)
	m, _, err := r.messageAt(x.search)
	switch {
	case err == nil && (m.kind == batchMessage || m.kind == dictionaryMessage):
		x.next = x.search
		return true, nil, nil
	case err == nil && m.kind == schemaMessage:
		x.ended = true
		return false, r.f.Corrupt(x.search, -1, "expected a record batch or a dictionary, found the schema of another stream: only one stream is read"), nil
	case x.finished:
		x.ended = true
		return false, err, nil
	case err == storage.ErrInterrupted:
		return false, nil, err
	}
	x.search += 8
	return false, nil, nil
}

// parseAgain reads the metadata of a message that was parsed before.
func (r *records) parseAgain(data []byte) (message, error) {
	length, size, _ := prefix(data)
	if length <= 0 || length > int64(len(data)-size) {
		return message{}, pyfeed.Errorf(pyfeed.Corrupt, "expected the metadata of a message, found another than before")
	}
	return parseMessage(data[size : int64(size)+length])
}
