//! From SVG to PNG.

use std::sync::Arc;

use epaint_default_fonts::{HACK_REGULAR, UBUNTU_LIGHT};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{FontResolver, Options, Tree};

use super::ChartError;
use super::text::{INK, borrowed};

/// The longest side of a picture in pixels; four times that of a large screen.
const LONGEST: f32 = 16_384.0;

/// See [`super::png`].
pub(super) fn png(svg: &str, scale: f32) -> Result<Vec<u8>, ChartError> {
    let tree = Tree::from_str(svg, &options())?;
    let size = tree.size();
    let (width, height) = ((size.width() * scale).round(), (size.height() * scale).round());
    let valid = |side: f32| (1.0..=LONGEST).contains(&side);
    let pixmap = if valid(width) && valid(height) { Pixmap::new(width as u32, height as u32) } else { None };
    let mut pixmap = pixmap.ok_or(ChartError::Size { width, height })?;
    let transform = Transform::from_scale(width / size.width(), height / size.height());
    resvg::render(&tree, transform, &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| ChartError::Png(error.to_string()))
}

/// Gives text more weight.
///
/// Our font is a light one, meant for large text on screens; an outline in the colour of the text
/// makes it as heavy as a regular font, and bold text as heavy as it asks for.
fn style_sheet() -> String {
    format!(
        "text {{ stroke: {INK}; stroke-width: 0.25 }} \
         text[font-weight=bold] {{ stroke-width: 0.7 }}"
    )
}

/// How to read our SVG: with the fonts of the program and no others.
fn options() -> Options<'static> {
    let mut fonts = Database::new();
    fonts.load_font_data(UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    if let Some(name) = family {
        fonts.set_sans_serif_family(name);
    }
    fonts.load_font_data(HACK_REGULAR.to_vec());
    Options {
        fontdb: Arc::new(fonts),
        font_resolver: resolver(),
        style_sheet: Some(style_sheet()),
        ..Options::default()
    }
}

/// Finds fonts as usual, except for the characters that name theirs.
///
/// For a character that the font of a text lacks, the renderer would set the whole text in
/// another font that has it, and so turn a line with one operator into typewriting.
fn resolver() -> FontResolver<'static> {
    let usual = FontResolver::default_fallback_selector();
    FontResolver {
        select_fallback: Box::new(
            move |c, used, fonts| {
                if borrowed(c) { None } else { usual(c, used, fonts) }
            },
        ),
        ..FontResolver::default()
    }
}
