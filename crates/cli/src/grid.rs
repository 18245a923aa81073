//! Aligned columns without lines, as iproute2 and ps print them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// How a column's cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// `rows` below `heads`, each line ended, without blanks at the line's end. Control characters in cells become `?`.
#[must_use]
pub fn render<const N: usize>(heads: [(&str, Align); N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads.map(|(head, _)| head));
    for row in rows {
        table.add_row(row.map(|cell| cell.replace(char::is_control, "?")));
    }
    for (index, (_, align)) in heads.into_iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            // One blank to the left of each column but the first, one to the right.
            column.set_padding((u16::from(index > 0), 1));
            if align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: text is aligned to the left and numbers to the right; nothing a peer named can move the cursor.
    #[test]
    fn alignment() {
        let rows = [["a".into(), "1".into()], ["b\u{1b}[2J".into(), "200".into()]];
        let text = render([("NAME", Align::Left), ("FRAMES", Align::Right)], rows);
        assert_eq!(text, "NAME   FRAMES\na           1\nb?[2J     200\n");
    }
}
