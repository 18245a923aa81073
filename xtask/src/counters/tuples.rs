//! Finds tuples that pack separate values into one, in statements and in parameters.

use proc_macro2::{Delimiter, TokenTree};

use super::tokens::{TokenLevel, is_alone, is_group, is_punct, is_tuple, is_word, line};

/// Returns the lines of a level's statements that assign a tuple to a tuple: `(a, b) = (x, y);`. Such statements with
/// `let` or with a type count, too, and so do the last statement of a block and the body of a match arm.
///
/// Calls that return a tuple, `for`, `match`, `if let` and `let … else` destructure a single value, and do not count.
pub fn assignments(level: &TokenLevel) -> Vec<usize> {
    let tokens = &level.tokens;
    let starts = (0..tokens.len()).filter(|&at| starts_statement(&tokens[..at]));
    starts.filter(|&at| is_assignment(&tokens[at..])).map(|at| line(&tokens[at])).collect()
}

/// Returns whether a statement, or a match arm's expression, begins after `before`.
fn starts_statement(before: &[TokenTree]) -> bool {
    match before {
        [] => true,
        [.., equals, arrow] if is_punct(arrow, '>') => is_punct(equals, '='),
        [.., last] => is_punct(last, ';') || is_group(last, Delimiter::Brace),
    }
}

fn is_assignment(tokens: &[TokenTree]) -> bool {
    let (is_let, rest) = match tokens {
        [first, rest @ ..] if is_word(first, "let") => (true, rest),
        all => (false, all),
    };
    let after = match rest {
        [pattern, rest @ ..] if is_tuple(pattern) => rest,
        _ => return false,
    };
    let has_type = is_let && after.first().is_some_and(|token| is_alone(token, ':'));
    let Some(equals) = after.iter().position(|token| is_alone(token, '=') || is_punct(token, ';')) else {
        return false;
    };
    let is_first = equals == 0 || has_type;
    is_first && is_alone(&after[equals], '=') && is_tuple_to_the_end(&after[equals + 1..])
}

fn is_tuple_to_the_end(tokens: &[TokenTree]) -> bool {
    match tokens {
        [value] => is_tuple(value),
        [value, end, ..] => is_tuple(value) && (is_punct(end, ';') || is_punct(end, ',')),
        [] => false,
    }
}

/// Returns the lines of the parameters of a level's functions whose type is a tuple, such as `at: (u32, u32)`.
/// Parameters of closures do not count, and neither does a tuple behind a reference or within another type.
pub fn parameters(level: &TokenLevel) -> Vec<usize> {
    let tokens = &level.tokens;
    let functions = (0..tokens.len()).filter(|&at| is_word(&tokens[at], "fn"));
    functions.filter_map(|at| parameter_list(&tokens[at + 1..])).flat_map(|list| tuple_types(&list)).collect()
}

/// Returns the parameters of a function, from the tokens after its `fn`; `None` for a function pointer.
fn parameter_list(tokens: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let [TokenTree::Ident(_), rest @ ..] = tokens else { return None };
    let mut depth = 0usize;
    let mut arrow = false;
    for token in rest {
        match token {
            TokenTree::Group(group) if depth == 0 => return Some(group.stream().into_iter().collect()),
            token if is_punct(token, '<') => depth += 1,
            token if is_punct(token, '>') && !arrow => depth = depth.checked_sub(1)?,
            _ => {}
        }
        arrow = is_punct(token, '-');
    }
    None
}

fn tuple_types(list: &[TokenTree]) -> Vec<usize> {
    let pairs = list.windows(2).filter(|pair| is_alone(&pair[0], ':') && is_tuple(&pair[1]));
    pairs.map(|pair| line(&pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::tokens::{Scope, levels};

    fn count(text: &str, of: fn(&TokenLevel) -> Vec<usize>) -> usize {
        levels(text, Scope::All).expect("tokens").iter().flat_map(of).count()
    }

    /// Objective: each way to pack assignments into one statement counts once, in any place, with its line.
    #[test]
    fn packed_statements_count() {
        for text in [
            "fn f() { let (a, b) = (1, 2); }",
            "fn f() { let (mut a, (b, c)): (u8, (u8, u8)) = (1, (2, 3)); }",
            "fn f() { (a, self.b[0]) = (b, a); }",
            "fn f() { if x { g() } (a, b) = (b, a) }",
            "fn f() { match x { _ => (a, b) = (b, a), } }",
            "m! { let (a, b) = (1, 2); }",
        ] {
            assert_eq!(count(text, assignments), 1, "{text}");
        }
        let lines: Vec<usize> = levels("fn f() {\n\n(a, b) = (b, a);\n}", Scope::All)
            .expect("tokens")
            .iter()
            .flat_map(assignments)
            .collect();
        assert_eq!(lines, [3]);
    }

    /// Objective: code that destructures a single value, or that only looks like an assignment, does not count.
    #[test]
    fn taking_apart_does_not_count() {
        for text in [
            "fn f() { let (a, b) = g(1, 2); let (a, b) = (1, 2).max(x); }",
            "fn f() { let (a, b) = if x { (1, 2) } else { (2, 1) }; }",
            "fn f() { for (a, b) in [(1, 2)] {} while let (Some(a), b) = (x, y) {} if let (1, b) = (x, y) {} }",
            "fn f() { match (x, y) { (a, b) => (b, a), } let (Some(a), b) = (x, y) else { return }; }",
            "fn f() { let pair = (1, 2); let (a) = (1); let pair: (u8, u8) = (1, 2); let x = (a, b) == (b, a); }",
            "const A: (u8, u8) = (1, 2); static B: (u8, u8) = (1, 2); type C = (u8, u8);",
            "// (a, b) = (x, y);\n/* let (a, b) = (x, y); */\n/// (a, b) = (x, y);\nfn f<'a>() {}",
            "fn f() { g(\"(a, b) = (x, y);\"); g(r#\"; (a, b) = (x, y);\"#); }",
            "fn f() { let g = |(a, b)| (b, a); (a, b); let [a, b] = [1, 2]; A { b } = (1, 2); }",
        ] {
            assert_eq!(count(text, assignments), 0, "{text}");
        }
    }

    /// Objective: parameters whose type is a tuple count, even in traits, after generics and after a pattern.
    #[test]
    fn tuple_parameters_count() {
        let text = "fn f(a: (u8, u8)) {} \
                    trait T { fn g<F: Fn(u8) -> u8, const N: usize>(&self, f: F, (a, b): (u8, u8)); } \
                    impl T { fn h<'a>(a: (&'a u8, Vec<u8>), b: u8, c: (u8, u8)) -> (u8, u8) { (1, 2) } }";
        assert_eq!(count(text, parameters), 4);
    }

    /// Objective: results, closures, calls, pointers to functions, fields and other types do not count.
    #[test]
    fn other_tuples_do_not_count() {
        for text in [
            "fn f(a: u8, b: ()) -> (u8, u8) { g((a, b), b) }",
            "fn f(a: &(u8, u8), b: &[(u8, u8)], c: Option<(u8, u8)>, d: (u8)) { let g = |x: (u8, u8)| x; }",
            "struct A { a: fn(a: (u8, u8)), b: (u8, u8) } struct B(u8, u8);",
            "fn f(g: impl Fn((u8, u8)), h: std::iter::Zip<(u8, u8)>) {} // fn f(a: (u8, u8))",
        ] {
            assert_eq!(count(text, parameters), 0, "{text}");
        }
    }
}
