//! One device: where operations are queued, and how they wait for each other.

use std::cell::OnceCell;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use fv_spec::program::{Kernel, Stream, View};

use super::memory::{DeviceArena, HostArena};
use super::modules::Modules;
use super::products::Products;
use super::{Error, asked, libraries, operations};
use crate::reference::Step;

/// A queue of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Kernels.
    Compute,
    /// Copies to the device.
    CopyIn,
    /// Copies to the host.
    CopyOut,
}

impl Queue {
    /// The queue of a program's stream; none for what the host does.
    pub fn of(stream: Stream) -> Option<Self> {
        match stream {
            Stream::Compute => Some(Self::Compute),
            Stream::CopyIn => Some(Self::CopyIn),
            Stream::CopyOut => Some(Self::CopyOut),
            Stream::Disk => None,
        }
    }
}

/// Where an operand lies.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In device memory, so many bytes from its start.
    Device(&'a DeviceArena, u64),
    /// In host memory, so many bytes from its start.
    Host(&'a HostArena, u64),
}

/// A matrix where it lies; the offset of its place is that of its first element.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    /// Its extents and format; which buffer it is in does not matter here.
    pub view: View,
    /// Its place.
    pub place: Place<'a>,
}

impl Operand<'_> {
    /// The address of its first element, if all of it is in its arena.
    pub(super) fn address(&self) -> Result<u64, Error> {
        let bytes = self.view.span_bytes();
        match self.place {
            Place::Device(arena, offset) => arena.at(offset, bytes),
            Place::Host(arena, offset) => arena.at(offset, bytes),
        }
    }

    pub(super) fn on_device(&self) -> bool {
        matches!(self.place, Place::Device(..))
    }
}

/// A point in a queue.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Event {
    /// Waits until it has happened.
    ///
    /// # Errors
    /// When the driver refuses, or something before it went wrong.
    pub fn wait(&self) -> Result<(), Error> {
        asked(|| "waiting for an event".to_owned(), self.0.synchronize())
    }

    /// Milliseconds from this one to a later one; both are timed and have happened.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn milliseconds_to(&self, later: &Self) -> Result<f64, Error> {
        Ok(f64::from(asked(|| "the time between events".to_owned(), self.0.elapsed_ms(&later.0))?))
    }
}

/// A device that executes operations of programs.
#[derive(Debug)]
pub struct Device {
    // Before the context, which they are made in.
    pub(super) modules: Modules,
    products: OnceCell<Products>,
    queues: [Arc<CudaStream>; 3],
    name: String,
    capability: (i32, i32),
    context: Arc<CudaContext>,
}

impl Device {
    /// The device of this number.
    ///
    /// # Errors
    /// When there is no driver, no such device, or it is too old.
    pub fn open(ordinal: u32) -> Result<Self, Error> {
        libraries::driver()?;
        let what = || format!("device {ordinal}");
        let context = asked(what, CudaContext::new(super::index(ordinal.into())))?;
        let name = asked(what, context.name())?;
        let capability = asked(what, context.compute_capability())?;
        if capability.0 < 8 {
            return Err(Error::TooOld { name, major: capability.0, minor: capability.1 });
        }
        // SAFETY: none of the crate's slices are made, whose order events would keep.
        #[expect(unsafe_code, reason = "the crate wants a promise that operations are ordered by their caller")]
        unsafe {
            context.disable_event_tracking();
        }
        let queue = || asked(what, context.new_stream());
        let queues = [queue()?, queue()?, queue()?];
        Ok(Self { modules: Modules::new(&context, capability), products: OnceCell::new(), queues, name, capability, context })
    }

    /// The vendor's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        let (free, total) = asked(|| "free memory".to_owned(), self.context.mem_get_info())?;
        let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        Ok((bytes(free), bytes(total)))
    }

    /// Device memory.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn arena(&self, bytes: u64) -> Result<DeviceArena, Error> {
        DeviceArena::new(&self.context, bytes)
    }

    /// Host memory, page-locked where the system allows it.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn host(&self, bytes: u64) -> Result<HostArena, Error> {
        HostArena::new(&self.context, bytes)
    }

    /// An event; `timed` where the time between two of them is asked for.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn event(&self, timed: bool) -> Result<Event, Error> {
        let flags = if timed { sys::CUevent_flags::CU_EVENT_DEFAULT } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING };
        asked(|| "an event".to_owned(), self.context.new_event(Some(flags))).map(Event)
    }

    /// The event happens when everything that is queued so far has been done.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn record(&self, event: &Event, queue: Queue) -> Result<(), Error> {
        asked(|| "recording an event".to_owned(), event.0.record(self.stream(queue)))
    }

    /// What is queued from here on waits for an event as it was recorded last.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn wait(&self, queue: Queue, event: &Event) -> Result<(), Error> {
        asked(|| "waiting for an event".to_owned(), self.stream(queue).wait(&event.0))
    }

    /// Waits until everything has been done.
    ///
    /// # Errors
    /// When something went wrong on the way.
    pub fn synchronize(&self) -> Result<(), Error> {
        asked(|| "waiting for the device".to_owned(), self.context.synchronize())
    }

    /// Queues an operation. Nothing waits for it that is not told to.
    ///
    /// # Errors
    /// When no kernel computes it, operands do not fit, or the driver refuses.
    pub fn launch(&self, queue: Queue, kernel: &Kernel, step: &Step, reads: &[Operand<'_>], writes: &[Operand<'_>]) -> Result<(), Error> {
        asked(|| "the context".to_owned(), self.context.bind_to_thread())?;
        operations::Call { device: self, stream: self.stream(queue), kernel, step, reads, writes }.launch()
    }

    pub(super) fn products(&self) -> Result<&Products, Error> {
        if let Some(products) = self.products.get() {
            return Ok(products);
        }
        let made = Products::new(&self.context)?;
        Ok(self.products.get_or_init(|| made))
    }

    /// Loads all kernels and the library of products with its memory: what is used later costs no memory then, but for what the
    /// library loads when it first uses an algorithm.
    ///
    /// # Errors
    /// When the library is missing, or kernels cannot be had.
    pub fn prepare(&self) -> Result<(), Error> {
        asked(|| "the context".to_owned(), self.context.bind_to_thread())?;
        self.modules.load()?;
        self.products().map(|_| ())
    }

    fn stream(&self, queue: Queue) -> &CudaStream {
        match queue {
            Queue::Compute => &self.queues[0],
            Queue::CopyIn => &self.queues[1],
            Queue::CopyOut => &self.queues[2],
        }
    }
}
