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

// Chrome writes the recording in the Trace Event Format, JSON that https://ui.perfetto.dev and chrome://tracing open.
//
// A span is a complete event ("X"), its times in microseconds since the recording began, its bytes, if any, among
// its args, for a Transfer with GB a second. A Track is a thread; spans that would overlap on one are put on further
// threads of the same name.
func (r *Recording) Chrome(w io.Writer) error {
	spans, tracks := r.spans()
	_, lost := r.extent(len(spans))
	threads, thread := layOut(spans, tracks)
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
	return out.w.Flush() // which has kept the first error
}

type chrome struct {
	w     *bufio.Writer
	pid   int
	line  []byte
	names map[string][]byte // quoted
	any   bool
}

func (c *chrome) text(s string) { _, _ = c.w.WriteString(s) }

func (c *chrome) quoted(name string) []byte {
	q := c.names[name]
	if q == nil {
		q, _ = json.Marshal(name) // of a string: never an error
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

// appendMicroseconds writes a number of nanoseconds, not negative, without losing any.
func appendMicroseconds(b []byte, ns int64) []byte {
	b = strconv.AppendInt(b, ns/1000, 10)
	rest := ns % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

// layOut puts spans on threads, from 1, so that on each they nest or follow each other: those of a Track on one, as
// long as they do. It answers the threads' names, in the order in which they are to be shown.
func layOut(spans []*event, tracks []track) (names []string, thread []uint32) {
	type lane struct {
		ends []int64 // of the spans that are open
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
			// On a shared track one within another would look as if it were a part of it.
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
	for _, i := range shown(spans, tracks) {
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

// shown is the tracks in the order in which they are shown: runs, copies to devices, what belongs to one thread, what
// is shared.
func shown(spans []*event, tracks []track) []int {
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
