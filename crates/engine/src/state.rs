//! A model as a safetensors file, with the names, shapes and orders PyTorch uses for `nn.Sequential`, so
//! that `load_state_dict` accepts it.

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

use crate::network::Network;

/// Why a file does not hold the parameters of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Not a safetensors file, or a damaged one.
    #[error("not a readable safetensors file: {0}")]
    Format(String),
    /// A parameter is missing or does not match the network.
    #[error("{name}: {why}")]
    Parameter {
        /// Its name.
        name: String,
        /// What was found, and what is expected.
        why: String,
    },
}

impl Network {
    /// The parameters `w` as a safetensors file, with `texts` as its metadata.
    pub fn to_safetensors(&self, w: &[f32], texts: HashMap<String, String>) -> Result<Vec<u8>, StateError> {
        let bytes: Vec<Vec<u8>> = self
            .parameters()
            .iter()
            .map(|parameter| {
                (0..parameter.numbers()).flat_map(|i| w[parameter.place(i)].to_le_bytes()).collect()
            })
            .collect();
        let format = |error: safetensors::SafeTensorError| StateError::Format(error.to_string());
        let mut views = Vec::new();
        for (parameter, bytes) in self.parameters().iter().zip(&bytes) {
            let view = TensorView::new(Dtype::F32, parameter.shape.clone(), bytes).map_err(format)?;
            views.push((parameter.name.as_str(), view));
        }
        serialize(views, Some(texts)).map_err(format)
    }

    /// The parameters in a safetensors file; `rename` maps our names to those in the file.
    pub fn from_safetensors(
        &self,
        file: &[u8],
        rename: impl Fn(&str) -> String,
    ) -> Result<Vec<f32>, StateError> {
        let tensors =
            SafeTensors::deserialize(file).map_err(|error| StateError::Format(error.to_string()))?;
        let mut w = vec![0.0; self.dimension()];
        for parameter in self.parameters() {
            let name = rename(&parameter.name);
            let refuse = |why: String| StateError::Parameter { name: name.clone(), why };
            let tensor = tensors.tensor(&name).map_err(|_| refuse("is missing".into()))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != parameter.shape {
                return Err(refuse(format!(
                    "is {:?} {:?}, but the network has F32 {:?}",
                    tensor.dtype(),
                    tensor.shape(),
                    parameter.shape
                )));
            }
            for (i, bytes) in tensor.data().as_chunks::<4>().0.iter().enumerate() {
                w[parameter.place(i)] = f32::from_le_bytes(*bytes);
            }
        }
        Ok(w)
    }
}
