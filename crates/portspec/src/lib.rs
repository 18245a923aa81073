//! Port names in netmap's grammar.
