//! Markdown tables.

/// A Markdown table whose columns line up in plain text as well. Rows shorter than the head are
/// filled with empty cells. Shape of `rows`: (row, column).
pub fn markdown_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], c: usize| row.get(c).map_or_else(String::new, |s| s.replace('|', "\\|"));
    let width = |c: usize| {
        rows.iter().map(|r| cell(r, c).chars().count()).chain([head[c].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(s, w)| format!("{s}{}", " ".repeat(w - s.chars().count())));
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let mut text = line(head.iter().map(|s| (*s).to_owned()).collect());
    text += &line(widths.iter().map(|w| "-".repeat(*w)).collect());
    for row in rows {
        text += &line((0..head.len()).map(|c| cell(row, c)).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_bars_are_escaped() {
        let rows = [vec!["a|b".to_owned(), "1".to_owned()], vec!["c".to_owned(), "22".to_owned()]];
        let text = markdown_table(&["x", "figure"], &rows);
        assert_eq!(text, "| x    | figure |\n| ---- | ------ |\n| a\\|b | 1      |\n| c    | 22     |\n");
    }
}
