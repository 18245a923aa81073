//! Aligns columns with blanks, as iproute2 and ps do.

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Number of blanks between two columns.
const GAP: usize = 2;

/// Formats `rows` below `heads`. Each line ends in a line feed, without trailing blanks. Control characters in cells
/// become `?`, so that a name cannot move the terminal's cursor.
#[must_use]
pub fn render<const N: usize>(heads: [(&str, Align); N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    render_rows(&heads, rows.into_iter().map(Vec::from))
}

/// Like [`render`], but for a terminal of `width` columns, if `width` is given: the columns named in `spare` are
/// omitted one after the other until the lines fit.
#[must_use]
pub fn render_within<'a>(
    heads: impl Into<Vec<(&'a str, Align)>>,
    rows: impl IntoIterator<Item = impl Into<Vec<String>>>,
    spare: &[&str],
    width: Option<usize>,
) -> String {
    let mut heads = heads.into();
    let mut rows: Vec<_> = rows.into_iter().map(Into::into).collect();
    let mut spare = spare.iter();
    loop {
        let text = render_rows(&heads, rows.clone());
        let fits = width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width));
        let next = if fits { None } else { spare.next() };
        let Some(column) = next.and_then(|name| heads.iter().position(|(head, _)| head == name)) else { return text };
        heads.remove(column);
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
}

/// Like [`render`], but for a variable number of columns. Each row has one cell for each heading.
#[must_use]
pub fn render_rows(heads: &[(&str, Align)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let first = heads.iter().map(|(head, _)| (*head).to_owned()).collect();
    let lines: Vec<Vec<String>> =
        std::iter::once(first).chain(rows).map(|row: Vec<String>| row.into_iter().map(printable).collect()).collect();
    let mut widths = vec![0; heads.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    lines.iter().map(|line| aligned(line, &widths, heads)).collect()
}

fn aligned(line: &[String], widths: &[usize], heads: &[(&str, Align)]) -> String {
    let mut text = String::new();
    for ((cell, &width), (_, align)) in line.iter().zip(widths).zip(heads) {
        let cell = match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        };
        text.push_str(&cell);
        text.push_str(&" ".repeat(GAP));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn printable(cell: String) -> String {
    cell.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: text is aligned to the left and numbers to the right, no line ends in blanks, and no name that a peer
    /// chose can move the cursor.
    #[test]
    fn text_is_aligned_left_and_numbers_right() {
        let rows = [["a".into(), "1 ".into()], ["b\u{1b}[2J".into(), "200K".into()]];
        let text = render([("NAME", Align::Left), ("FRAMES", Align::Right)], rows);
        assert_eq!(text, "NAME   FRAMES\na          1\nb?[2J    200K\n");
    }

    /// Objective: if lines are too long, spare columns are omitted in the given order, and no more than necessary.
    #[test]
    fn overlong_lines_lose_only_spare_columns() {
        let heads = ["NAME", "A", "B", "C"].map(|head| (head, Align::Left));
        let within = |width| render_within(heads, [["name", "a", "b", "c"].map(str::to_owned)], &["B", "A"], width);
        for width in [None, Some(13)] {
            assert_eq!(within(width), "NAME  A  B  C\nname  a  b  c\n");
        }
        assert_eq!(within(Some(12)), "NAME  A  C\nname  a  c\n");
        for width in [9, 7, 1] {
            assert_eq!(within(Some(width)), "NAME  C\nname  c\n");
        }
    }
}
