//! Memory that is reserved at once: device memory, and host memory that the device reads and writes by itself.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use memmap2::MmapMut;

use super::{Error, asked, index};

/// Device memory.
#[derive(Debug)]
pub struct DeviceArena {
    context: Arc<CudaContext>,
    address: u64,
    bytes: u64,
}

impl DeviceArena {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, Error> {
        let what = || format!("{bytes} bytes of device memory");
        asked(what, context.bind_to_thread())?;
        // SAFETY: a context is current. The memory is freed by `drop` alone.
        #[expect(unsafe_code, reason = "device memory has no owner but this")]
        let address = asked(what, unsafe { result::malloc_sync(index(bytes.max(1))) })?;
        Ok(Self { context: context.clone(), address, bytes })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of some bytes.
    pub(super) fn at(&self, offset: u64, bytes: u64) -> Result<u64, Error> {
        within(offset, bytes, self.bytes)?;
        Ok(self.address + offset)
    }

    /// Sets every byte, and waits for it.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        let what = || format!("filling {} bytes", self.bytes);
        asked(what, self.context.bind_to_thread())?;
        // SAFETY: all of it is this arena's; whoever computes with it is told to wait by the caller.
        #[expect(unsafe_code, reason = "the driver takes an address")]
        asked(what, unsafe { result::memset_d8_sync(self.address, byte, index(self.bytes)) })?;
        asked(what, self.context.synchronize())
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        // What still computes with it ends first; a context that is lost has freed everything.
        if self.context.synchronize().is_ok() {
            // SAFETY: it was allocated by `new`, and nothing on the device uses it any more.
            #[expect(unsafe_code, reason = "device memory has no owner but this")]
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// Host memory of exactly the planned size, page-locked where the system allows it.
#[derive(Debug)]
pub struct HostArena {
    context: Arc<CudaContext>,
    memory: MmapMut,
    bytes: u64,
    refused: Option<String>,
}

impl HostArena {
    pub(super) fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, Error> {
        let memory = MmapMut::map_anon(index(bytes.max(1))).map_err(|why| Error::Host { bytes, why })?;
        let mut arena = Self { context: context.clone(), memory, bytes, refused: None };
        arena.refused = arena.lock().err().map(|error| error.to_string());
        Ok(arena)
    }

    /// Why it is ordinary memory, where the driver would not lock it: copies are slower then, and wait for the host.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn lock(&mut self) -> Result<(), Error> {
        let what = || format!("page-locking {} bytes of host memory", self.bytes);
        asked(what, self.context.bind_to_thread())?;
        let (address, bytes) = (self.memory.as_mut_ptr().cast(), self.memory.len());
        // SAFETY: the mapping is this arena's, and is unlocked before it is unmapped.
        #[expect(unsafe_code, reason = "the driver takes an address")]
        let answer = unsafe { sys::cuMemHostRegister_v2(address, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        asked(what, answer.result())
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of its bytes. What copies that are on their way write is there once they have been waited for.
    ///
    /// # Errors
    /// When they are not in it.
    pub fn slice(&self, offset: u64, bytes: u64) -> Result<&[u8], Error> {
        within(offset, bytes, self.bytes)?;
        Ok(&self.memory[index(offset)..index(offset + bytes)])
    }

    /// Some of its bytes, to write to.
    ///
    /// # Errors
    /// When they are not in it.
    pub fn slice_mut(&mut self, offset: u64, bytes: u64) -> Result<&mut [u8], Error> {
        within(offset, bytes, self.bytes)?;
        Ok(&mut self.memory[index(offset)..index(offset + bytes)])
    }

    /// The address of some bytes.
    pub(super) fn at(&self, offset: u64, bytes: u64) -> Result<u64, Error> {
        within(offset, bytes, self.bytes)?;
        Ok(self.memory.as_ptr() as u64 + offset)
    }
}

impl Drop for HostArena {
    fn drop(&mut self) {
        // Copies that are on their way end first.
        let _ = self.context.synchronize();
        if self.refused.is_none() {
            // SAFETY: `new` locked this mapping, which is unmapped after this.
            #[expect(unsafe_code, reason = "the driver takes an address")]
            let _ = unsafe { sys::cuMemHostUnregister(self.memory.as_mut_ptr().cast()) };
        }
    }
}

fn within(offset: u64, bytes: u64, size: u64) -> Result<(), Error> {
    if offset.checked_add(bytes).is_some_and(|end| end <= size) { Ok(()) } else { Err(Error::Outside { offset, bytes, size }) }
}
