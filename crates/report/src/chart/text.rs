//! Text and numbers as SVG, and how much room text needs.

/// The colour of all text.
pub(super) const INK: &str = "#222";

/// The size of a raised or lowered character relative to its neighbours.
const SMALL: f64 = 0.72;

/// Each raised character followed by the ordinary one it is drawn with.
const RAISED: &str = "⁰0¹1²2³3⁴4⁵5⁶6⁷7⁸8⁹9⁺+⁻−⁼=⁽(⁾)ⁿnⁱiᴸLᵁUᵀTᵏk";

/// Each lowered character followed by the ordinary one it is drawn with.
const LOWERED: &str = "₀0₁1₂2₃3₄4₅5₆6₇7₈8₉9₊+₋−₌=₍(₎)ₙnᵢiₖkₜt";

/// The family of the font that [`borrowed`] characters are taken from.
pub(super) const BORROWED_FAMILY: &str = "Hack";

/// The decimal digits that [`raised`] writes an exponent with.
const RAISED_DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// Which part of a line of text is at the place given for it.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The look of a text.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) anchor: Anchor,
}

/// The height of a character relative to the line it stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Raised,
    Base,
    Lowered,
}

impl Level {
    /// How far the baseline moves down, relative to the size of the text.
    fn shift(self) -> f64 {
        match self {
            Self::Raised => -0.36,
            Self::Base => 0.0,
            Self::Lowered => 0.18,
        }
    }
}

/// A number with at most two decimals and no trailing zeros.
pub(super) fn num(value: f64) -> String {
    let fixed = format!("{value:.2}");
    let short = fixed.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".into() } else { short.into() }
}

/// An exponent in raised characters.
pub(super) fn raised(exponent: i32) -> String {
    let digits = exponent.unsigned_abs().to_string();
    let sign = (exponent < 0).then_some('⁻');
    // Decimal digits are ASCII, so their distance from '0' is below ten.
    let digits = digits.bytes().map(|d| RAISED_DIGITS[usize::from(d - b'0')]);
    sign.into_iter().chain(digits).collect()
}

/// Text, safe in the content and in the attributes of XML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(' '),
            // XML 1.0 has no way at all to write these, not even escaped.
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// The partner of a character in a list of pairs.
fn partner(pairs: &str, c: char) -> Option<char> {
    let mut chars = pairs.chars();
    while let (Some(from), Some(to)) = (chars.next(), chars.next()) {
        if from == c {
            return Some(to);
        }
    }
    None
}

/// The characters to draw, each with the height to draw it at.
fn levels(text: &str) -> Vec<(Level, char)> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // Unicode has hardly any lowered Greek. File names, which have underscores too, have it
        // even less.
        let greek = chars.next_if(|&next| c == '_' && matches!(next, 'α'..='ω' | 'µ'));
        out.push(match greek {
            Some(letter) => (Level::Lowered, letter),
            None => level(c),
        });
    }
    out
}

/// The character to draw and the height to draw it at.
fn level(c: char) -> (Level, char) {
    // Nearly every character is ASCII, and no ASCII character is raised or lowered.
    if c.is_ascii() {
        (Level::Base, c)
    } else if let Some(plain) = partner(RAISED, c) {
        (Level::Raised, plain)
    } else if let Some(plain) = partner(LOWERED, c) {
        (Level::Lowered, plain)
    } else {
        (Level::Base, c)
    }
}

/// Whether a character is to be taken from the second font of the pictures: the first one lacks
/// arrows, most operators and geometric shapes.
pub(super) fn borrowed(c: char) -> bool {
    match c {
        '∂' | '∆' | '∏' | '∑' | '−' | '∕' | '∙' | '√' | '∞' | '∫' | '≈' | '≠' | '≤' | '≥' | '◊' => {
            false
        }
        '\u{2190}'..='\u{2bff}' | '′' | '″' => true,
        _ => false,
    }
}

/// The content of a text element.
fn content(text: &str, size: f64) -> String {
    let mut out = String::new();
    // `dy` moves the baseline for all that follows, so each run starts from where the last one
    // left it. The property `baseline-shift` would be simpler, but not every browser knows it.
    let mut before = Level::Base;
    for run in levels(text).chunk_by(|a, b| a.0 == b.0 && borrowed(a.1) == borrowed(b.1)) {
        // A chunk is never empty.
        let (now, first) = run[0];
        let mut attributes = String::new();
        if now != before {
            let dy = (now.shift() - before.shift()) * size;
            attributes += &format!(" dy=\"{}\"", num(dy));
        }
        if now == Level::Raised && before == Level::Base {
            // A letter that leans to the right, such as f, would touch what is raised.
            attributes += &format!(" dx=\"{}\"", num(0.05 * size));
        }
        if now != Level::Base {
            attributes += &format!(" font-size=\"{}\"", num(size * SMALL));
        }
        if borrowed(first) {
            attributes += &format!(" font-family=\"{BORROWED_FAMILY}, sans-serif\"");
        }
        let plain: String = run.iter().map(|&(_, c)| c).collect();
        let plain = escape(&plain);
        out += &if attributes.is_empty() { plain } else { format!("<tspan{attributes}>{plain}</tspan>") };
        before = now;
    }
    out
}

/// Writes one line of text with its baseline at a place.
pub(super) fn line(out: &mut String, text: &str, (x, y): (f64, f64), style: Style) {
    let at = format!("x=\"{}\" y=\"{}\"", num(x), num(y));
    place(out, text, &at, style);
}

/// Writes one line of text that reads upwards.
pub(super) fn line_upwards(out: &mut String, text: &str, (x, y): (f64, f64), style: Style) {
    let at = format!("transform=\"translate({} {}) rotate(-90)\"", num(x), num(y));
    place(out, text, &at, style);
}

/// Writes one line of text at the place that the attributes `at` give.
fn place(out: &mut String, text: &str, at: &str, style: Style) {
    let anchor = match style.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
    let size = num(style.size);
    let content = content(text, style.size);
    *out += &format!("<text {at} font-size=\"{size}\"{weight}{anchor}>{content}</text>\n");
}

/// The width of a character relative to the size of the text.
///
/// An SVG is shown with whatever font its reader has, so no exact width exists. These are the
/// widths of a wide sans-serif, rounded up: text may end up narrower than its room, not wider.
fn advance(c: char) -> f64 {
    match level(c) {
        (Level::Base, c) => match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
            'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | '"' => 0.42,
            'm' | 'w' | 'M' | 'W' | '@' | '%' | '—' | '…' => 1.0,
            'A'..='Z' | '<' | '>' | '=' | '+' | '×' | '−' | '⊗' => 0.78,
            // From here on scripts are as wide as they are high.
            '\u{1100}'.. => 1.0,
            _ => 0.63,
        },
        // Hardly anything but digits is raised or lowered.
        _ => 0.63 * SMALL,
    }
}

/// An upper bound of the width of a line of text.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Breaks text into lines no wider than `room`, between words where possible.
pub(super) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if width(last, size) + width(word, size) + width(" ", size) <= room => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.extend(pieces(word, size, room)),
        }
    }
    lines
}

/// A word cut into pieces no wider than `room`; one piece in nearly all cases.
fn pieces(word: &str, size: f64, room: f64) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0.0;
    for c in word.chars() {
        let step = advance(c) * size;
        if used > 0.0 && used + step > room {
            pieces.push(String::new());
            used = 0.0;
        }
        used += step;
        // There is a last piece: the list starts with one and only grows.
        if let Some(last) = pieces.last_mut() {
            last.push(c);
        }
    }
    pieces
}
