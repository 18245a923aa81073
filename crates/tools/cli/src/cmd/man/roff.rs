//! Converts text to roff: the text after a command's help becomes sections, in which the lines of tables are not
//! joined.

/// Formats a section. Indented lines stay unchanged; all other lines are filled into paragraphs.
pub fn section(title: &str, body: &str) -> String {
    let mut text = format!(".SH \"{title}\"\n");
    let mut is_table = false;
    for line in body.trim_matches('\n').lines() {
        let indented = line.starts_with(' ');
        if indented != is_table && !line.is_empty() {
            text += if indented { ".nf\n" } else { ".fi\n" };
            is_table = indented;
        }
        text += if line.is_empty() && !is_table { ".PP" } else { "" };
        text += &escaped(line);
        text.push('\n');
    }
    if is_table { text + ".fi\n" } else { text }
}

/// Splits the text after a command's help: a line `Title:` begins a section. Text before the first title is ignored.
pub fn sections(help: &str) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        match line.strip_suffix(':').filter(|title| title.starts_with(|c: char| c.is_ascii_uppercase())) {
            Some(title) => parts.push((title.to_owned(), String::new())),
            None => parts.last_mut().into_iter().for_each(|(_, body)| *body += &format!("{line}\n")),
        }
    }
    let title = |title: &str| if title == "Exit codes" { "EXIT STATUS".to_owned() } else { title.to_uppercase() };
    parts.iter().map(|(name, body)| section(&title(name), body)).collect()
}

/// Escapes a line so that roff does not interpret the line as a request, and prints dashes as typed.
pub fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: paragraphs are filled and tables are not, no line is interpreted as a request, and each title begins
    /// a section.
    #[test]
    fn no_line_of_text_becomes_a_request() {
        let text = sections("Words:\n  a  b\n\nAll of\n.them\nExit codes:\n  0  success\n");
        let first = ".SH \"WORDS\"\n.nf\n  a  b\n\n.fi\nAll of\n\\&.them\n";
        assert_eq!(text, format!("{first}.SH \"EXIT STATUS\"\n.nf\n  0  success\n.fi\n"));
        assert_eq!(escaped("a-b\\c"), "a\\-b\\ec");
    }
}
