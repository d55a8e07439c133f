//! A page in one file, without external resources or scripts.

const STYLE: &str = "\
:root { color-scheme: light; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: #ffffff; color: #1c1c1c;
       font: 15px/1.5 Helvetica, Arial, 'DejaVu Sans', sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.8rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #444444; } td { border-bottom: 1px solid #e3e3e3; }
";

/// Text, escaped for an element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A page that is being written. Text arguments are escaped.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    text: String,
}

impl Page {
    /// A page with a title.
    pub(crate) fn new(title: &str) -> Self {
        let title = escape(title);
        let text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, \
             initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        Self { text }
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, text: &str) {
        self.wrapped("h2", text);
    }

    /// Adds a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.wrapped("p", text);
    }

    /// Adds a list, or nothing if it is empty.
    pub(crate) fn list(&mut self, items: &[String]) {
        if !items.is_empty() {
            self.text += "<ul>\n";
            items.iter().for_each(|item| self.wrapped("li", item));
            self.text += "</ul>\n";
        }
    }

    /// Adds a picture, an SVG element.
    pub(crate) fn picture(&mut self, svg: &str) {
        self.text += &format!("<div class=\"wide\">\n{svg}</div>\n");
    }

    /// Adds a table, a cell for each text.
    pub(crate) fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        let cells = |cell: &str, texts: &[String]| -> String {
            texts.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect()
        };
        self.text += &format!(
            "<div class=\"wide\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
            cells("th", head)
        );
        for row in rows {
            self.text += &format!("<tr>{}</tr>\n", cells("td", row));
        }
        self.text += "</tbody>\n</table></div>\n";
    }

    /// The page's text.
    pub(crate) fn finish(mut self) -> String {
        self.text += "</body>\n</html>\n";
        self.text
    }

    fn wrapped(&mut self, element: &str, text: &str) {
        self.text += &format!("<{element}>{}</{element}>\n", escape(text));
    }
}
