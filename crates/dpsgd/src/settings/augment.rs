//! How views of images are written: `flip`, `shift:PIXELS`, or both, and how many of each sample.

use dpsgd_engine::views::Augment;

use super::{RawSettings, SettingsError, defaults, refuse};

/// The most views of a sample.
const MOST_VIEWS: u64 = 256;

/// Reads what may happen to an image; none if nothing may.
pub(super) fn parse(raw: &RawSettings) -> Result<Option<Augment>, SettingsError> {
    if raw.augment.is_empty() {
        return match raw.views {
            Some(views) => refuse(format!("views = {views}: only with --augment, which says what they are")),
            None => Ok(None),
        };
    }
    let views = raw.views.unwrap_or(defaults::VIEWS);
    if !(1..=MOST_VIEWS).contains(&views) {
        return refuse(format!("views = {views}: between 1 and {MOST_VIEWS}"));
    }
    if raw.features.is_some() {
        return refuse(
            "augment: not with --features, which are computed once, from the images as they are; leave one \
             out",
        );
    }
    let mut augment = Augment { flip: false, shift: 0, views: views as usize };
    for written in &raw.augment {
        let shift = written.strip_prefix("shift:").and_then(|pixels| pixels.parse().ok());
        match (written.as_str(), shift) {
            ("flip", _) if !augment.flip => augment.flip = true,
            (_, Some(pixels)) if pixels > 0 && augment.shift == 0 => augment.shift = pixels,
            _ => {
                return refuse(format!(
                    "augment = {}: flip, shift:PIXELS with at least one pixel, or both, each once (for \
                     example, flip,shift:4)",
                    raw.augment.join(",")
                ));
            }
        }
    }
    Ok(Some(augment))
}

/// Writes it down, so that [`parse`] reads it back.
pub(super) fn write(augment: Option<Augment>, raw: &mut RawSettings) {
    let Some(Augment { flip, shift, views }) = augment else { return };
    if flip {
        raw.augment.push("flip".to_string());
    }
    if shift > 0 {
        raw.augment.push(format!("shift:{shift}"));
    }
    raw.views = Some(views as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(augment: &[&str], views: Option<u64>) -> RawSettings {
        let augment = augment.iter().map(ToString::to_string).collect();
        RawSettings { augment, views, ..Default::default() }
    }

    #[test]
    fn what_is_written_is_read_back_or_refused() {
        assert_eq!(parse(&raw(&[], None)).unwrap(), None);
        let both = Augment { flip: true, shift: 4, views: 8 };
        assert_eq!(parse(&raw(&["shift:4", "flip"], Some(8))).unwrap(), Some(both));
        for augment in [both, Augment { flip: false, views: 1, ..both }, Augment { shift: 0, ..both }] {
            let mut written = RawSettings::default();
            write(Some(augment), &mut written);
            assert_eq!(parse(&written).unwrap(), Some(augment));
        }
        assert_eq!(parse(&raw(&["flip"], None)).unwrap().unwrap().views, defaults::VIEWS as usize);
        for (augment, views) in [
            (&[][..], Some(4)),
            (&["flip"], Some(0)),
            (&["flip"], Some(257)),
            (&["flip", "flip"], None),
            (&["shift"], None),
            (&["shift:0"], None),
            (&["shift:-1"], None),
            (&["shift:1", "shift:2"], None),
            (&["turn"], None),
        ] {
            assert!(parse(&raw(augment, views)).is_err(), "{augment:?}");
        }
    }
}
