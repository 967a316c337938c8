//! What comes from outside and what leaves, wherever a program is executed.

use fv_device::reference::{Written, storage};
use fv_spec::program::{Group, Kernel, Op, Program, View};

use super::memory::index;
use super::outputs::Values;
use super::{Trouble, World};

/// Does an operation that exchanges something with the world, and gives what it writes; nothing where the operation computes.
/// `rows` are the bytes of a view's rows in host memory.
pub(super) fn exchange(
    program: &Program,
    world: &mut World<'_>,
    op: &Op,
    repetition: u32,
    rows: impl Fn(&View) -> Result<Vec<u8>, Trouble>,
) -> Result<Option<Vec<Written>>, Trouble> {
    let written = match op.kernel {
        Kernel::Read { group, first_byte } => read(program, world, op, (group, first_byte))?,
        Kernel::Lookup { group, tensor } => lookup(program, world, op, (group, tensor), rows)?,
        Kernel::Input { what, index } => {
            let target = one(&op.writes, "target")?;
            let numbers = world.inputs.read(what, index + repetition, target.rows, target.columns)?;
            let mut bytes = Vec::new();
            storage::encode(target.element, &numbers, &mut bytes);
            Written { bytes, has_nan: numbers.iter().any(|number| number.is_nan()) }
        }
        Kernel::Output { what, index } => {
            let source = one(&op.reads, "source")?;
            let values = Values { element: source.element, rows: source.rows, columns: source.columns, bytes: rows(source)? };
            world.outputs.take(what, index, &values)?;
            return Ok(Some(Vec::new()));
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![written]))
}

fn group_of(program: &Program, group: u32) -> Result<&Group, Trouble> {
    program.groups.get(group as usize).ok_or_else(|| Trouble::Missing(format!("group {group}")))
}

fn read(program: &Program, world: &World<'_>, op: &Op, (group, first_byte): (u32, u64)) -> Result<Written, Trouble> {
    let target = one(&op.writes, "target")?;
    let mut bytes = vec![0; index(target.bytes())];
    world.weights.read(group_of(program, group)?, first_byte, &mut bytes)?;
    Ok(Written { bytes, has_nan: false })
}

/// Rows of a tensor by number, in the element of the target.
fn lookup(
    program: &Program,
    world: &World<'_>,
    op: &Op,
    (group, tensor): (u32, u32),
    rows: impl Fn(&View) -> Result<Vec<u8>, Trouble>,
) -> Result<Written, Trouble> {
    let (ids, target) = (one(&op.reads, "ids")?, one(&op.writes, "target")?);
    let group = group_of(program, group)?;
    let table = group.tensors.get(tensor as usize).ok_or_else(|| Trouble::Missing(format!("tensor {tensor} in its group")))?;
    let (mut numbers, mut values) = (Vec::new(), Vec::<f64>::new());
    storage::decode::<f64>(ids.element, &rows(ids)?, &mut numbers);
    let mut row = vec![0; index(target.columns * table.element.bytes())];
    for number in numbers {
        let id = storage::as_whole(number).filter(|id| *id < table.shape[0]);
        let id = id.ok_or_else(|| Trouble::Missing(format!("row {number} in {}", table.name)))?;
        world.weights.read(group, table.offset_bytes + id * row.len() as u64, &mut row)?;
        storage::decode(table.element, &row, &mut values);
    }
    let mut bytes = Vec::new();
    storage::encode(target.element, &values, &mut bytes);
    Ok(Written { bytes, has_nan: false })
}

/// The only operand.
fn one<'v>(views: &'v [View], what: &str) -> Result<&'v View, Trouble> {
    views.first().ok_or_else(|| Trouble::Missing(what.to_owned()))
}
