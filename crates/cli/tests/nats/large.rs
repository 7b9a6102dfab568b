//! Models too large for one message.

use crate::broker::{Broker, terms, until};
use crate::site::{Coordinating, Site};

pub fn models_in_parts() {
    // 12 MB: two messages would not do, twelve parts do.
    let mut broker = Broker::of(terms(1, 3_000_000));
    let file = broker.file("server.toml");
    let coordinator = Coordinating::start(&file);
    let mut site = Site::open(&broker.file("client-1.toml"));
    until("there is a model", || site.newest().is_some());
    site.send();
    site.send();
    until("both are folded", || coordinator.state().accepted() == 2);
    let weights = coordinator.state().weights;
    until("the model is there", || site.newest().is_some_and(|model| model.version == 2));
    assert!(site.newest().unwrap().weights == weights);
    let eta = site.terms.eta(0) as f32;
    let (first, second) = (site.noise(0), site.noise(1));
    let expected = first.iter().zip(&second).map(|(a, b)| (0.0 - eta * a) - eta * b);
    assert!(weights.iter().zip(expected).all(|(w, e)| (w - e).abs() <= 1e-6), "both updates are in it");
    // The state is in parts, too, and is found again.
    coordinator.end().unwrap();
    broker.kill();
    broker.start();
    let again = Coordinating::start(&file);
    assert!(again.state().version == 2 && again.state().weights == weights);
    site.send();
    until("it goes on", || again.state().accepted() == 3);
    until("old parts are dropped", || broker.stored() < 12 * 12_000_000);
    again.end().unwrap();
}
