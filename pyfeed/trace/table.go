package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sentence says in words what limits the loop, and by how much.
func (s *Summary) sentence() string {
	switch {
	case s.Spans == 0 && s.PendingSeconds == 0:
		return "nothing was recorded"
	case s.LimitedBy == "":
		return "cannot tell what limits the loop: " + s.incompleteReason()
	}
	first := s.Parts[0]
	limit, if_ := "the "+first.Name+" limits the loop", "if its data were always there"
	speedup := first.Speedup
	switch first.Name {
	case partNames[compute]:
		// For compute, the sentence tells the cost of the other parts, because those are what users can improve.
		limit, if_ = "the loop's own computation limits it", "if data were always there"
		speedup = new(s.ConsumerSeconds / (first.Seconds + s.part(executor).Seconds))
	case partNames[copying]:
		limit, if_ = "copying limits the loop", "if it took no time"
	case partNames[transfer]:
		limit, if_ = "copying to devices limits the loop", "if it took no time"
	case partNames[executor]:
		limit, if_ = "the executor itself limits the loop", "if it took no time"
	}
	of := s.counted()
	if of != "" {
		of = " of " + of
	}
	text := fmt.Sprintf("%s: %.0f %% of the time%s; ", limit, 100*first.Share, of)
	switch {
	case speedup == nil:
		text += "no other part took time"
	case first.Name == partNames[compute] && *speedup < 1.05: // would be printed as 1.0 times
		text += "data is there in time"
	default:
		text += if_ + ", the loop would be at most " + times(*speedup) + " as fast"
	}
	return text + s.others()
}

// shared reports whether the Parts include the time of that consumer.
func (s *Summary) shared(c Consumer) bool {
	return !c.Pushes || !slices.ContainsFunc(s.Consumers, func(c Consumer) bool { return !c.Pushes && c.Seconds > 0 })
}

// counted describes the number of runs and reads that share the time; "" for a single run.
func (s *Summary) counted() string {
	var all []string
	threads, reads := 0, 0
	for _, c := range s.Consumers {
		if c.Thread != 0 && c.Seconds > 0 && s.shared(c) {
			threads++
			reads += c.Reads
		}
	}
	switch {
	case s.Runs > 1:
		all = append(all, fmt.Sprintf("%d runs", s.Runs))
	case s.Runs == 1 && threads > 0:
		all = append(all, "1 run")
	}
	if threads == 1 {
		all = append(all, fmt.Sprintf("%d reads", reads))
	} else if threads > 1 {
		all = append(all, fmt.Sprintf("%d reads by %d threads, summed", reads, threads))
	}
	return strings.Join(all, " and ")
}

// others describes the consumers whose own limit differs from the limit of all together.
func (s *Summary) others() string {
	count := make(map[string]int)
	for _, c := range s.Consumers {
		if c.LimitedBy != "" && c.LimitedBy != s.LimitedBy && s.shared(c) {
			count[c.LimitedBy]++
		}
	}
	text := ""
	for _, name := range partNames {
		if n := count[name]; n > 0 {
			text += fmt.Sprintf("; considered alone, %d of %d consumers would be limited by %s", n, len(s.Consumers), name)
		}
	}
	return text
}

// incompleteReason returns why the summary cannot name what limits the loop.
func (s *Summary) incompleteReason() string {
	text := "no run and no thread that reads was recorded"
	switch {
	case s.contention != "":
		text = s.contention
	case s.PendingSeconds >= max(s.ConsumerSeconds, s.UnansweredSeconds) && s.PendingSeconds > 0:
		text = fmt.Sprintf("consumers spent %s in reads that had not ended when the recording did, and only %s of their earlier time was recorded",
			duration(s.PendingSeconds), duration(s.ConsumerSeconds))
	case s.UnansweredSeconds > 0:
		text = fmt.Sprintf("after reads that timed out, consumers did something else for %s, which may have been a wait for data: give read a longer timeout",
			duration(s.UnansweredSeconds))
	case s.RoomSeconds > 0:
		text = "the consumers that were recorded only waited for free space"
	case s.Runs > 0:
		text = "the runs that were recorded took no time"
	case len(s.Consumers) > 0:
		text = "no thread read twice, so the time between two reads of a loop is not known"
	}
	waited := s.ProducerSeconds
	if s.ConsumerSeconds > 0 {
		waited = s.part(producer).Seconds // which has the waits for functions of map, too
	}
	text += fmt.Sprintf("; consumers waited %s for producers, and producers and prefetching threads waited %s for free space",
		duration(waited), duration(s.FullSeconds))
	if len(s.Devices) > 0 {
		var busy, stalled float64
		for _, d := range s.Devices {
			busy += d.BusySeconds
			stalled += d.Stalls.Seconds
		}
		text += fmt.Sprintf("; copies to devices took %s, and consumers stalled %s for them", duration(busy), duration(stalled))
	}
	return text
}

func (s *Summary) part(i int) Part {
	for _, p := range s.Parts {
		if p.Name == partNames[i] {
			return p
		}
	}
	return Part{}
}

// maxRows limits the rows of the table; the Summary has them all.
const maxRows = 50

// Table returns the Summary as text for people.
func (r *Recording) Table() string {
	s := r.Summary()
	var b strings.Builder
	b.WriteString(s.Sentence + "\n")
	if s.Dropped > 0 {
		fmt.Fprintf(&b, "the recording was full: %d spans had no room, and this summary covers only the time before\n", s.Dropped)
	}
	if s.LimitedBy != "" {
		rows := [][]string{{"part of the loop", "time", "share", "at most"}}
		for _, p := range s.Parts {
			faster := ""
			if p.Speedup != nil {
				faster = times(*p.Speedup)
			}
			rows = append(rows, []string{p.Name, duration(p.Seconds), percent(p.Share), faster})
		}
		b.WriteString("\n")
		align(&b, rows, 1)
	}
	if s.Spans > 0 {
		b.WriteString("\n")
		totals := [][]string{
			{"recorded", duration(s.Seconds), fmt.Sprintf("%d spans", s.Spans)},
			{"runs", duration(s.RunSeconds), strconv.Itoa(s.Runs)},
			{"threads that read", duration(s.ConsumerSeconds - s.RunSeconds), fmt.Sprintf("%d reads", s.Reads)},
			{"waits of consumers for free space", duration(s.RoomSeconds), ""},
			{"waits for tuples of a queue", duration(s.ProducerSeconds), ""},
			{"waits of producers and prefetching threads for free space", duration(s.FullSeconds), ""},
			{"copies", duration(s.Copies.Seconds), volume(s.Copies.Bytes, s.Copies.BytesPerSecond)},
		}
		if s.BacklogSeconds > 0 {
			totals = append(totals, []string{"waits for busy devices", duration(s.BacklogSeconds), ""})
		}
		align(&b, totals, 1)
		if len(s.Devices) > 0 {
			b.WriteString("\n")
			align(&b, deviceRows(s.Devices), 1)
		}
		rows := [][]string{{"track", "category", "name", "count", "total", "mean", "max", "share", "bytes"}}
		for _, o := range s.Operators[:min(len(s.Operators), maxRows)] {
			rows = append(rows, []string{plain(o.Track), o.Category, plain(o.Name), strconv.Itoa(o.Count), duration(o.Seconds),
				duration(o.Mean), duration(o.Max), percent(o.Share), volume(o.Bytes, o.BytesPerSecond)})
		}
		b.WriteString("\n")
		align(&b, rows, 3)
		if more := len(s.Operators) - maxRows; more > 0 {
			fmt.Fprintf(&b, "and %d more, which the summary has\n", more)
		}
	}
	return b.String()
}

func deviceRows(devices []Device) [][]string {
	rows := [][]string{{"copies to", "count", "busy", "idle", "overlap", "bytes", "stalls", "stalled", "median", "p99"}}
	for _, d := range devices {
		overlap := ""
		if d.Overlap != nil {
			overlap = percent(*d.Overlap)
		}
		stalls := []string{"0", "", "", ""}
		if s := d.Stalls; s.Count > 0 {
			stalls = []string{strconv.Itoa(s.Count), duration(s.Seconds), duration(s.Median), duration(s.P99)}
		}
		rows = append(rows, append([]string{plain(d.Place), strconv.Itoa(d.Transfers), duration(d.BusySeconds),
			duration(d.IdleSeconds), overlap, volume(d.Bytes, d.BytesPerSecond)}, stalls...))
	}
	return rows
}

// align writes rows of columns. The first `left` columns are aligned to the left, the others to the right.
func align(b *strings.Builder, rows [][]string, left int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				line.WriteString(cell + space)
			} else {
				line.WriteString(space + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// plain quotes a name with control characters, which could break the line.
func plain(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return strconv.Quote(name)
	}
	return name
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func times(f float64) string {
	switch {
	case f >= 1000:
		return "over 1000 times"
	case f >= 10:
		return fmt.Sprintf("%.0f times", f)
	}
	return fmt.Sprintf("%.1f times", f)
}

func duration(seconds float64) string {
	switch {
	case seconds == 0:
		return "0 s"
	case seconds >= 0.9995:
		return significant(seconds) + " s"
	case seconds >= 0.9995e-3:
		return significant(seconds*1e3) + " ms"
	case seconds >= 0.9995e-6:
		return significant(seconds*1e6) + " µs"
	}
	return significant(seconds*1e9) + " ns"
}

// volume formats a number of bytes and their rate.
func volume(bytes int64, perSecond float64) string {
	if bytes == 0 {
		return ""
	}
	s := size(float64(bytes))
	if perSecond > 0 {
		s += ", " + size(perSecond) + "/s"
	}
	return s
}

func size(bytes float64) string {
	unit := 0
	for ; bytes >= 999.5 && unit < len(units)-1; unit++ {
		bytes /= 1000
	}
	return significant(bytes) + " " + units[unit]
}

var units = []string{"B", "kB", "MB", "GB", "TB", "PB"}

// significant formats a positive number with three significant digits, or with all digits before the point.
func significant(f float64) string {
	switch {
	case f >= 99.95:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 9.995:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}
