package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
)

// Chrome writes the recording in the Trace Event Format, a JSON format that https://ui.perfetto.dev and
// chrome://tracing open.
//
// A span is a complete event ("X") with times in microseconds since the start of the recording. The number of bytes, if
// there is one, is among its args; a Transfer also has GB/s. A Track is drawn as a thread. Spans that would overlap on
// one thread are put on more threads of the same name.
func (r *Recording) Chrome(w io.Writer) error {
	spans, tracks := r.spans()
	_, lost := r.extent(len(spans))
	threads, thread := assignThreads(spans, tracks)
	out := &chrome{w: bufio.NewWriterSize(w, 1<<16), pid: os.Getpid(), names: make(map[string][]byte)}

	out.text(`{"traceEvents":[`)
	out.metadata("process_name", 0, `{"name":"pyfeed"}`)
	for i, name := range threads {
		out.metadata("thread_name", i+1, `{"name":`+string(out.quoted(name))+`}`)
		out.metadata("thread_sort_index", i+1, `{"sort_index":`+strconv.Itoa(i+1)+`}`)
	}
	for i, e := range spans {
		out.span(e, thread[i], r.start)
	}
	out.text("\n" + `],"displayTimeUnit":"ms","otherData":{"spans":` + strconv.Itoa(len(spans)) +
		`,"dropped_spans":` + strconv.FormatUint(lost, 10) + "}}\n")
	return out.w.Flush() // the Writer keeps the first error
}

type chrome struct {
	w     *bufio.Writer
	pid   int
	line  []byte
	names map[string][]byte // name in quotes, by name
	any   bool
}

func (c *chrome) text(s string) { _, _ = c.w.WriteString(s) }

func (c *chrome) quoted(name string) []byte {
	q := c.names[name]
	if q == nil {
		q, _ = json.Marshal(name) // a string never fails
		c.names[name] = q
	}
	return q
}

// begin starts the line of an event.
func (c *chrome) begin() []byte {
	b := c.line[:0]
	if c.any {
		b = append(b, ',')
	}
	c.any = true
	return append(b, '\n')
}

func (c *chrome) metadata(name string, tid int, args string) {
	b := append(c.begin(), `{"ph":"M","pid":`...)
	b = strconv.AppendInt(b, int64(c.pid), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(tid), 10)
	b = append(b, `,"name":"`+name+`","args":`+args+`}`...)
	_, _ = c.w.Write(b)
	c.line = b
}

func (c *chrome) span(e *event, tid uint32, start int64) {
	b := append(c.begin(), `{"ph":"X","pid":`...)
	b = strconv.AppendInt(b, int64(c.pid), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendUint(b, uint64(tid), 10)
	b = append(b, `,"name":`...)
	b = append(b, c.quoted(e.name)...)
	b = append(b, `,"cat":"`...)
	b = append(b, e.category.String()...)
	b = append(b, `","ts":`...)
	b = appendMicroseconds(b, e.start-start)
	b = append(b, `,"dur":`...)
	b = appendMicroseconds(b, e.end-e.start)
	if bytes := e.bytes(); bytes != 0 {
		b = append(b, `,"args":{"bytes":`...)
		b = strconv.AppendInt(b, bytes, 10)
		if took := e.end - e.start; e.category == Transfer && took > 0 {
			b = append(b, `,"GB/s":`...)
			b = strconv.AppendFloat(b, float64(bytes)/float64(took), 'g', 4, 64)
		}
		b = append(b, '}')
	}
	b = append(b, '}')
	_, _ = c.w.Write(b)
	c.line = b
}

// appendMicroseconds writes ns, which is not negative, in microseconds with all digits.
func appendMicroseconds(b []byte, ns int64) []byte {
	b = strconv.AppendInt(b, ns/1000, 10)
	rest := ns % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// assignThreads assigns spans to threads, numbered from 1, so that the spans of each thread nest or follow each other.
// The spans of a Track share one thread as far as possible. It returns the names of the threads in display order, and
// the thread of each span.
func assignThreads(spans []*event, tracks []track) (names []string, thread []uint32) {
	type lane struct {
		ends []int64 // ends of the open spans
		id   int
	}
	lanes := make([][]*lane, len(tracks))
	of := make([]*lane, len(spans))
	for i, e := range spans {
		var found *lane
		for _, l := range lanes[e.track] {
			for n := len(l.ends); n > 0 && l.ends[n-1] <= e.start; n-- {
				l.ends = l.ends[:n-1]
			}
			// On a shared track, a span within another would look like a part of it.
			if n := len(l.ends); n == 0 || !tracks[e.track].shared && e.end <= l.ends[n-1] {
				found = l
				break
			}
		}
		if found == nil {
			found = new(lane)
			lanes[e.track] = append(lanes[e.track], found)
		}
		if e.end > e.start {
			found.ends = append(found.ends, e.end)
		}
		of[i] = found
	}
	for _, i := range displayOrder(spans, tracks) {
		for _, l := range lanes[i] {
			names = append(names, tracks[i].name)
			l.id = len(names)
		}
	}
	thread = make([]uint32, len(spans))
	for i, l := range of {
		thread[i] = uint32(l.id)
	}
	return names, thread
}

// displayOrder returns the indexes of the tracks in display order: runs, copies to devices, tracks of one thread,
// shared tracks.
func displayOrder(spans []*event, tracks []track) []int {
	runs, copies := make([]bool, len(tracks)), make([]bool, len(tracks))
	for _, e := range spans {
		runs[e.track] = runs[e.track] || e.category == Run || e.category == Compute
		copies[e.track] = copies[e.track] || e.category == Transfer
	}
	rank := func(i int) int {
		switch {
		case runs[i]:
			return 0
		case copies[i]:
			return 1
		case !tracks[i].shared:
			return 2
		case i > 0:
			return 3
		}
		return 4
	}
	order := make([]int, len(tracks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	return order
}
