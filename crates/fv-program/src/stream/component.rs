//! What weights a component has.

use fv_spec::authored::Role;
use fv_spec::program::{ALIGNMENT, Element, Group, Order, Tensor};

/// A component: its weights in the order in which they lie in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// What it is.
    pub role: Role,
    /// What it has outside blocks; always on the device.
    pub root: Vec<Parameter>,
    /// Blocks, each of which can live anywhere.
    pub blocks: Vec<Block>,
}

/// Weights that are moved together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What the names of all begin with, such as `blocks.3.`.
    pub prefix: String,
    /// Its weights; names are what comes after the prefix.
    pub parameters: Vec<Parameter>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its extents.
    pub shape: Vec<u64>,
    /// How it is stored.
    pub element: Element,
    /// The order of its elements.
    pub order: Order,
}

impl Parameter {
    /// A tensor in the order of its checkpoint.
    pub fn new(name: impl Into<String>, shape: &[u64], element: Element) -> Self {
        Self { name: name.into(), shape: shape.to_vec(), element, order: Order::Checkpoint }
    }
}

impl Block {
    /// The block with its matrices in eight bits, and behind each of them a scale for each of its rows.
    #[must_use]
    pub fn in_eight_bits(self, element: Element) -> Self {
        let parameters = self.parameters.into_iter().flat_map(|parameter| {
            let matrix = parameter.shape.len() == 2 && parameter.name.ends_with(".weight");
            let scale = matrix.then(|| Parameter::new(format!("{}.scale", parameter.name), &parameter.shape[..1], Element::F32));
            let element = if matrix { element } else { parameter.element };
            std::iter::once(Parameter { element, ..parameter }).chain(scale)
        });
        Self { parameters: parameters.collect(), ..self }
    }
}

impl Component {
    /// What lies outside blocks.
    pub fn root_group(&self) -> Group {
        layout(self.role, None, "", &self.root)
    }

    /// A block.
    pub fn block_group(&self, block: usize) -> Group {
        let Block { prefix, parameters } = &self.blocks[block];
        layout(self.role, u32::try_from(block).ok(), prefix, parameters)
    }
}

/// Tensors one after another, each at a multiple of [`ALIGNMENT`].
pub fn layout(component: Role, block: Option<u32>, prefix: &str, parameters: &[Parameter]) -> Group {
    let mut bytes = 0;
    let mut place = |parameter: &Parameter| {
        let offset_bytes = bytes;
        let size = parameter.shape.iter().product::<u64>() * parameter.element.bytes();
        bytes += size.next_multiple_of(ALIGNMENT);
        let Parameter { name, shape, element, order } = parameter.clone();
        Tensor { name: format!("{prefix}{name}"), shape, element, offset_bytes, order }
    };
    let tensors = parameters.iter().map(&mut place).collect();
    Group { component, block, bytes, tensors }
}
