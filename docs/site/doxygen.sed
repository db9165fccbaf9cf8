# What Doxygen reads in place of a header.
# A comment before a using-declaration is meant for what follows it.
/^ *using [A-Za-z:]+;$/d
# Names of arguments that a body does not use.
s#/\*([A-Za-z]+)\*/#\1#g
# Words in angle brackets are no tags.
/^ *\/\/\/ {1,3}[^ ]/{
/`/!s/<([A-Za-z_]+)>/\\<\1\\>/g
}
