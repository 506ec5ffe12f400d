//! Where what was found goes: to the terminal, to a program, into a document.

use std::{fs, path::PathBuf};

use anyhow::Context as _;

use super::Report;

#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Put the tables in place of those in this document
    #[arg(long, value_name = "FILE.md")]
    document: Option<PathBuf>,
}

impl Output {
    /// Tells all that the benchmark `name` has found. Whether targets are met is for the reader: on a
    /// busy machine times say little.
    pub(crate) fn tell(
        &self,
        name: &str,
        report: &Report,
        tables: &[String],
    ) -> anyhow::Result<()> {
        let text = tables.join("\n");
        if self.json {
            println!("{}", report.json());
        } else {
            println!("{text}");
        }
        let Some(file) = &self.document else { return Ok(()) };
        let document =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let document = replaced(&document, name, &text)
            .with_context(|| format!("{} has no place for {name}", file.display()))?;
        fs::write(file, document).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// The document with other tables between the marks of this name.
fn replaced(document: &str, name: &str, tables: &str) -> Option<String> {
    let begin = format!("<!-- bench {name} -->\n");
    let end = format!("<!-- end of bench {name} -->");
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{tables}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_take_the_place_of_those_of_the_same_name() {
        let document = "a\n<!-- bench x -->\nold\n<!-- end of bench x -->\nb\n";
        let new = replaced(document, "x", "| new |\n").unwrap();
        assert_eq!(new, "a\n<!-- bench x -->\n\n| new |\n\n<!-- end of bench x -->\nb\n");
        assert_eq!(replaced(&new, "x", "| new |\n").unwrap(), new);
        assert_eq!(replaced(document, "y", ""), None);
    }

    #[test]
    fn the_page_has_a_place_for_every_benchmark() {
        let page = include_str!("../../../../docs/performance.md");
        for name in ["paths", "scale", "growth", "instructions"] {
            assert!(replaced(page, name, "").is_some(), "{name}");
        }
    }
}
