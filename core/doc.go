// Package core owns the nouns of Columba – ids, names, queues, groups, extents, errors – and, in its
// children, the pure rules that decide about them. It imports the standard library only, starts nothing,
// reads no clock (time is an argument) and does no I/O.
package core
