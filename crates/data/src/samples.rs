//! A data set as the native engine reads it.

use std::sync::Arc;

use dpsgd_engine::{Label, Samples};

use crate::dataset::{Dataset, Targets};

/// The samples of a data set, shared by all workers.
///
/// ```
/// use std::sync::Arc;
/// use dpsgd_data::{Dataset, Inputs, Labelled, Targets};
/// use dpsgd_engine::{GradientWorker, Level, Network, zoo};
///
/// let targets = Targets::Classes { labels: vec![1, 0], classes: 2 };
/// let set = Dataset::new(Inputs::Bytes(vec![0, 255, 0, 51]), targets, [1, 2, 1])?;
/// let network = Arc::new(Network::new(&zoo::logistic(set.shape(), 2))?);
/// let mut worker = GradientWorker::new(network, Arc::new(Labelled(Arc::new(set))), 1, Level::best());
/// assert_eq!(worker.scores(&[0, 1]).len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Labelled(pub Arc<Dataset>);

impl Samples for Labelled {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        self.0.copy_input(index as usize, out);
    }

    fn label(&self, index: u32) -> Label<'_> {
        let index = index as usize;
        match self.0.targets() {
            Targets::Classes { labels, .. } => Label::Class(labels[index]),
            Targets::Values(values) => Label::Values(&values[index..=index]),
        }
    }

    fn weight(&self, index: u32) -> f32 {
        self.0.weight(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Inputs;

    /// The gradient of a weighted sample is its gradient times the weight of its class.
    #[test]
    fn class_weights_multiply_gradients() {
        use dpsgd_engine::{GradientWorker, Level, Network, zoo};
        let targets = Targets::Classes { labels: vec![0, 1], classes: 2 };
        let plain = Dataset::new(Inputs::Floats(vec![0.5, -0.25]), targets, [1, 1, 1]).unwrap();
        let weighted = plain.clone().with_class_weights(&[0.25, 1.0]).unwrap();
        let network = Arc::new(Network::new(&zoo::logistic([1, 1, 1], 2)).unwrap());
        let of = |set: &Dataset, sample: u32| {
            let samples = Arc::new(Labelled(Arc::new(set.clone())));
            let mut worker = GradientWorker::new(Arc::clone(&network), samples, 1, Level::best());
            worker.weights_mut().copy_from_slice(&[0.3, -0.2, 0.1, 0.4]);
            let mut gradient = vec![0.0; 4];
            let loss = worker.gradient(&[sample], &mut gradient);
            gradient.push(loss);
            gradient
        };
        for (sample, weight) in [(0, 0.25), (1, 1.0)] {
            for (plain, weighted) in of(&plain, sample).iter().zip(of(&weighted, sample)) {
                assert!((weight * plain - weighted).abs() < 1e-7, "{sample}: {plain} {weighted}");
            }
        }
    }

    #[test]
    fn classes_and_values_reach_the_engine() {
        let inputs = || Inputs::Floats(vec![0.5, 0.25, 1.0]);
        let classes = Targets::Classes { labels: vec![2, 0, 1], classes: 3 };
        let set = Labelled(Arc::new(Dataset::new(inputs(), classes, [1, 1, 1]).unwrap()));
        assert_eq!(set.count(), 3);
        assert_eq!([0, 1, 2].map(|i| set.label(i)), [2, 0, 1].map(Label::Class));
        let mut input = [0.0];
        set.copy_input(1, &mut input);
        assert_eq!(input, [0.25]);
        let values = Targets::Values(vec![0.1, 0.2, 0.3]);
        let set = Labelled(Arc::new(Dataset::new(inputs(), values, [1, 1, 1]).unwrap()));
        assert_eq!(set.label(2), Label::Values(&[0.3]));
    }
}
