package program

// operators has all operators by name. It is set in init, because functions of the operators refer to it.
var operators map[string]*operator

func init() {
	operators = map[string]*operator{
		"read":     readOp,
		"has_next": hasNextOp,
		"reset":    resetOp,

		"save_reader": saveReaderOp,
		"load_reader": loadReaderOp,

		"stage":   stageOp,
		"unstage": unstageOp,

		"while":   whileOp,
		"if_else": ifElseOp,

		"less_than":     comparing(true, func(c int) bool { return c == -1 }),
		"less_equal":    comparing(true, func(c int) bool { return c == -1 || c == 0 }),
		"greater_than":  comparing(true, func(c int) bool { return c == 1 }),
		"greater_equal": comparing(true, func(c int) bool { return c == 1 || c == 0 }),
		"equal":         comparing(false, func(c int) bool { return c == 0 }),
		"not_equal":     comparing(false, func(c int) bool { return c != 0 }),
		"logical_and":   logical(2, func(x, y bool) bool { return x && y }),
		"logical_or":    logical(2, func(x, y bool) bool { return x || y }),
		"logical_not":   logical(1, func(x, _ bool) bool { return !x }),

		"increment":     incrementOp,
		"assign":        assignOp,
		"fill_constant": fillConstantOp,
		"print":         printOp,
		"call":          callOp,
	}
	addReaderOps(operators)
}
