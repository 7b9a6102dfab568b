//! Features in the place of pixels: computed once, each sample's from that sample alone.

use dpsgd_data::{Dataset, Split};
use dpsgd_engine::kernel::Level;
use dpsgd_engine::scattering::Scattering;

use super::settings::FeaturesName;
use crate::Failure;

/// The features of both sets.
///
/// # Guarantee
/// Neighbouring data sets have neighbouring features ([`Dataset::map`]): nothing is spent.
pub fn of(split: &Split, features: FeaturesName, threads: usize) -> Result<Split, Failure> {
    let FeaturesName::Scattering = features;
    let set = |pixels: &Dataset| {
        let scattering = Scattering::new(pixels.shape(), Level::best())
            .map_err(|error| Failure::Input(format!("features = {error}")))?;
        let made =
            pixels.map(scattering.features(), threads, |image, out| scattering.transform(image, out))?;
        Ok::<_, Failure>(made)
    };
    Ok(Split { train: set(&split.train)?, test: set(&split.test)? })
}
