// Package cli is the command line: it reads files and flags, calls the packages that know, and prints. What is for people
// goes to the terminal as text, tables and pictures; -o json and -o yaml are for programs. Errors go to the standard error
// and say what is wrong, where, and what to do.
package cli
