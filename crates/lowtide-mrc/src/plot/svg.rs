//! Elements, attributes and escaping.

use std::fmt::{Display, Write};

/// Text, escaped for an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML does not allow control characters.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A picture that is being written.
#[derive(Debug)]
pub(super) struct Svg {
    text: String,
}

impl Svg {
    /// A picture of `width` by `height` pixels on white, with `name` for screen readers.
    pub(super) fn new(width: u32, height: u32, name: &str) -> Self {
        let name = escape(name);
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" \
             height=\"{height}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" \
             font-size=\"13\" \
             role=\"img\" aria-label=\"{name}\">\n"
        );
        let mut svg = Self { text };
        svg.element("rect", &[("width", &width), ("height", &height), ("fill", &"#ffffff")]);
        svg
    }

    /// The beginning of a tag, up to the first attribute.
    fn open(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        _ = write!(self.text, "<{name}");
        self.attributes(attributes);
    }

    fn attributes(&mut self, attributes: &[(&str, &dyn Display)]) {
        for (attribute, value) in attributes {
            _ = write!(self.text, " {attribute}=\"{}\"", escape(&value.to_string()));
        }
    }

    /// An element without content.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.open(name, attributes);
        self.text.push_str("/>\n");
    }

    /// Text whose baseline is at `(x, y)`.
    pub(super) fn text(
        &mut self,
        x: f64,
        y: f64,
        content: &str,
        attributes: &[(&str, &dyn Display)],
    ) {
        self.open("text", &[("x", &Px(x)), ("y", &Px(y))]);
        self.attributes(attributes);
        _ = writeln!(self.text, ">{}</text>", escape(content));
    }

    /// A line from one point to another.
    pub(super) fn line(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        attributes: &[(&str, &dyn Display)],
    ) {
        let path = format!("M{} {}L{} {}", Px(from.0), Px(from.1), Px(to.0), Px(to.1));
        self.path(&path, attributes);
    }

    /// A path without filling, unless the attributes fill it.
    pub(super) fn path(&mut self, path: &str, attributes: &[(&str, &dyn Display)]) {
        self.open("path", &[("d", &path)]);
        self.attributes(attributes);
        self.text.push_str("/>\n");
    }

    /// Begins a group of elements with common attributes.
    pub(super) fn begin(&mut self, attributes: &[(&str, &dyn Display)]) {
        self.open("g", attributes);
        self.text.push_str(">\n");
    }

    /// Ends the group.
    pub(super) fn end(&mut self) {
        self.text.push_str("</g>\n");
    }

    /// The picture's text.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A length or coordinate in pixels, with one decimal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_is_escaped() {
        let mut svg = Svg::new(10, 20, "a \"b\"");
        svg.text(1.0, 2.55, "<x> & \u{1}", &[("fill", &"\"red\"")]);
        let text = svg.finish();
        assert!(text.contains("aria-label=\"a &quot;b&quot;\""));
        assert!(
            text.contains(
                "<text x=\"1\" y=\"2.5\" fill=\"&quot;red&quot;\">&lt;x&gt; &amp;  </text>"
            ),
            "{text}"
        );
    }
}
