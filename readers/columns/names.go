package columns

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Max is the largest number of columns of a file.
const Max = 1 << 20

// MaxSlots is the largest number of slots if each column is a slot: every instance in memory has that many.
const MaxSlots = 4096

// Names are the names of a file's columns, in their order.
type Names struct {
	All   []string // nil: the columns have no names
	Count int      // of columns
}

// Label names a column in an error: by its name, or else by its number.
func (n *Names) Label(at int) string {
	if n.All != nil {
		return Label(n.All[at], at)
	}
	return Label("", at)
}

// Label names a column in an error: by its name, or by its number if the name is "".
func Label(name string, number int) string {
	if name != "" {
		return fmt.Sprintf("column %q", name)
	}
	return fmt.Sprintf("column %d", number)
}

// Index returns the number of the column with that name or number.
func (n *Names) Index(name string) (int, error) {
	at := slices.Index(n.All, name)
	if at >= 0 {
		if slices.Contains(n.All[at+1:], name) {
			return 0, fmt.Errorf("expected one column %q, found several: use its number", name)
		}
		return at, nil
	}
	if number, err := strconv.ParseUint(name, 10, 32); err == nil && int(number) < n.Count {
		return int(number), nil
	}
	return 0, fmt.Errorf("expected the name or number of a column, found %q; there are %s%s",
		name, n, record.Suggest(name, slices.Values(n.All)))
}

// String lists the first names.
func (n *Names) String() string {
	if n.All == nil {
		return fmt.Sprintf("%d, without names", n.Count)
	}
	shown := n.All[:min(len(n.All), 20)]
	s := fmt.Sprintf("%q", shown)
	s = strings.ReplaceAll(s[1:len(s)-1], `" "`, `", "`)
	if len(shown) < len(n.All) {
		s += fmt.Sprintf(" and %d more", len(n.All)-len(shown))
	}
	return s
}

// Choose returns the numbers of the columns that a selection has. single reports whether it is a column by itself,
// rather than a list or a range of one column.
func (n *Names) Choose(s Select) (all []int, single bool, err error) {
	if len(s.Items) == 0 {
		return nil, false, fmt.Errorf("expected at least 1 column, found none")
	}
	single = s.Single
	for _, item := range s.Items {
		switch item := item.(type) {
		case int:
			if item < -n.Count || item >= n.Count {
				return nil, false, fmt.Errorf("expected the number of a column, %d to %d, found %d", -n.Count, n.Count-1, item)
			}
			all = append(all, (item+n.Count)%n.Count)
		case string:
			at, err := n.Index(item)
			if err == nil {
				all = append(all, at)
				continue
			}
			first, last, is := n.interval(item)
			if !is {
				return nil, false, err
			}
			if last < first {
				return nil, false, fmt.Errorf("expected a first and a last column, found %q, where the last comes before the first", item)
			}
			single = false
			for ; first <= last; first++ {
				all = append(all, first)
			}
		default:
			return nil, false, fmt.Errorf("expected names or numbers of columns, found %v", item)
		}
		if len(all) > Max {
			return nil, false, fmt.Errorf("expected at most %d columns, found more", Max)
		}
	}
	return all, single, nil
}

// interval parses "first:last", where names may contain colons too.
func (n *Names) interval(s string) (first, last int, is bool) {
	for i := range len(s) {
		if s[i] != ':' {
			continue
		}
		first, last = 0, n.Count-1
		var before, behind error
		if i > 0 {
			first, before = n.Index(s[:i])
		}
		if i < len(s)-1 {
			last, behind = n.Index(s[i+1:])
		}
		if before == nil && behind == nil {
			return first, last, true
		}
	}
	return 0, 0, false
}
