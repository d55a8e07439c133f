//! The classes `Pager` and `Tenant`.

use crate::arguments::{optional_size, policy, size};
use crate::budget::{Budget, Place, Spec, Step};
use crate::counters;
use crate::errors::OrRaise;
use crate::forks;
use lowtide::budget::AutoLimits;
use lowtide::status::Origin;
use lowtide::{Policy, Settled, Size};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What files and maps are opened under: a budget, and who pays.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) budget: Arc<Budget>,
    pub(crate) place: Arc<Place>,
}

impl Account {
    /// The account of a `Pager` or a `Tenant`.
    ///
    /// # Errors
    /// `TypeError` for another object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(pager) = object.cast::<Pager>() {
            return Ok(pager.get().account.clone());
        }
        if let Ok(tenant) = object.cast::<Tenant>() {
            return Ok(tenant.get().account.clone());
        }
        let what = object.get_type();
        Err(PyTypeError::new_err(format!(
            "a budget is a lowtide.Pager or a lowtide.Tenant: {what}"
        )))
    }

    /// The pager and the tenant in this process.
    ///
    /// # Errors
    /// Those of making them.
    pub(crate) fn tenant(&self) -> PyResult<lowtide::Tenant> {
        let root = self.budget.root()?;
        self.place.find(root).or_raise()
    }

    fn below(&self, step: Step) -> Self {
        let mut steps = self.place.steps.clone();
        steps.push(step);
        Self { budget: Arc::clone(&self.budget), place: Arc::new(Place { steps }) }
    }

    fn make_tenant(
        &self,
        py: Python<'_>,
        name: String,
        limits: [Option<&Bound<'_, PyAny>>; 4],
    ) -> PyResult<Tenant> {
        let mut sizes = [None; 4];
        for (size, limit) in sizes.iter_mut().zip(limits) {
            *size = optional_size(limit)?;
        }
        let account = self.below(Step { name, limits: sizes });
        // Errors are said now, and not when the first file is opened.
        py.detach(|| account.tenant().map(drop))?;
        Ok(Tenant { account })
    }
}

/// The classes of results (`python/lowtide/_results.py`).
fn results(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("lowtide._results")
}

/// A result with names of its own.
fn named<'py>(kind: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    results(fields.py())?.getattr(kind)?.call((), Some(fields))
}

/// One budget of memory, and the files and maps that share it.
#[pyclass(module = "lowtide", frozen, weakref)]
pub(crate) struct Pager {
    pub(crate) account: Account,
}

impl Pager {
    fn make(py: Python<'_>, spec: Spec) -> PyResult<Self> {
        let budget = Budget::new(spec);
        py.detach(|| budget.root().map(drop))?;
        Ok(Self { account: Account { budget, place: Arc::default() } })
    }
}

/// How often a call that waits lets Python's handlers of signals run.
const SIGNALS: Duration = Duration::from_millis(100);
/// Smaller budgets have a pager of their own, which knows how small it may be.
const LEAST: Size = Size::mib(1);

/// The budget of a size for maps, which shares threads and descriptors with others (`shelf`).
#[pyfunction]
pub(crate) fn pager_for_maps(py: Python<'_>, max: &Bound<'_, PyAny>) -> PyResult<Pager> {
    let (max, on_shelf) = size(max).map(|max| (max, max >= LEAST))?;
    let (policy, page_size, swap, swap_dir, populate) = (Policy::MGLRU, 4096, None, None, false);
    let (warm, zcache) = (None, true);
    let spec = Spec { max, policy, page_size, swap, swap_dir, populate, warm, zcache, on_shelf };
    Pager::make(py, spec)
}

#[pymethods]
impl Pager {
    #[new]
    #[pyo3(
        signature = (
            max, *, policy="mglru", page_size=4096, swap=None, swap_dir=None, populate=false,
            warm=None, zcache=true, **others
        ),
        text_signature = "(max, *, policy='mglru', page_size=4096, swap=None, swap_dir=None, \
            populate=False, warm=None, zcache=True)"
    )]
    #[allow(clippy::too_many_arguments, reason = "they have names")]
    fn new(
        py: Python<'_>,
        max: &Bound<'_, PyAny>,
        policy: &str,
        page_size: usize,
        swap: Option<&Bound<'_, PyAny>>,
        swap_dir: Option<PathBuf>,
        populate: bool,
        warm: Option<PathBuf>,
        zcache: bool,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if let Some(others) = others {
            return Err(PyTypeError::new_err(match others.contains("page")? {
                true => "`page` is now `page_size`".to_owned(),
                false => format!("unexpected arguments of a Pager: {others}"),
            }));
        }
        let spec = Spec {
            max: size(max)?,
            policy: self::policy(policy)?,
            page_size,
            swap: optional_size(swap)?,
            swap_dir: swap_dir.map(std::path::absolute).transpose()?,
            populate,
            warm: warm.map(std::path::absolute).transpose()?.map(|path| (path, std::process::id())),
            zcache,
            on_shelf: false,
        };
        Self::make(py, spec)
    }

    /// Bytes of the budget.
    #[getter]
    fn max(&self) -> u64 {
        self.account.budget.spec.max.bytes()
    }

    /// Bytes of a page.
    #[getter]
    fn page_size(&self) -> usize {
        self.account.budget.spec.page_size
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.account.budget.is_closed()
    }

    /// Bytes that pages take of the budget in this process.
    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.account.tenant()?.usage().or_raise())
    }

    /// A budget within the budget. As in the kernel, its `max` may be more than the pager's, which
    /// then limits it: that one may be raised.
    #[pyo3(signature = (name, *, min=None, low=None, high=None, max=None))]
    fn tenant(
        &self,
        py: Python<'_>,
        name: String,
        min: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
        max: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tenant> {
        self.account.make_tenant(py, name, [min, low, high, max])
    }

    /// Counters, by the names of the kernel's `memory.stat` and of `lowtide::Stat`.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stat = py.detach(|| self.account.budget.stat())?;
        let counters = counters::of_pager(py, &stat)?;
        results(py)?.getattr("Stat")?.call1((counters,))
    }

    /// Lets `lowtide top` and `lowtide stat` of this user see the pager, once a second, until it is
    /// closed.
    fn publish_status(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let root = self.account.budget.root()?;
            let published = root.pager().publish_status(Origin::Python);
            published.map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// Saves which pages are in memory in a file, for `warm` of another pager.
    fn save_warm(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let saved = self.account.budget.root()?.pager().save_warm(path);
            saved.map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// Waits until the pages of `warm` are read, of the files that were opened so far. Returns
    /// whether they are.
    #[pyo3(signature = (timeout=60.0))]
    fn wait_warm(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let deadline = Instant::now().checked_add(timeout);
        let deadline = deadline.ok_or_else(|| PyValueError::new_err("the timeout is too long"))?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let step = left.min(SIGNALS);
            let is_ready =
                py.detach(|| Ok::<_, PyErr>(self.account.budget.root()?.pager().wait_warm(step)))?;
            if is_ready || left.is_zero() {
                return Ok(is_ready);
            }
            py.check_signals()?;
        }
    }

    /// How much time is lost waiting for memory: shares of the time, and seconds.
    fn pressure<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pressure = py.detach(|| self.account.tenant()?.pressure().or_raise())?;
        named("Pressure", &counters::of_pressure(py, &pressure)?)
    }

    /// The budget in bytes with which nine tenths of the waiting would have been avoided.
    fn budget_for_stalls(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.account.tenant()?.budget_for_stalls().or_raise())
    }

    /// The smallest budget in bytes with which at most this share of the accesses misses, besides
    /// the first of each page. None before there was an access.
    #[pyo3(signature = (target = 0.02))]
    fn budget_for_misses(&self, py: Python<'_>, target: f64) -> PyResult<Option<u64>> {
        let advice = py.detach(|| self.account.tenant()?.budget_for_misses(target).or_raise())?;
        Ok(advice.map(|advice| advice.bytes))
    }

    /// How many accesses would miss at other sizes. None before there was an access.
    fn curve<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let curve = py.detach(|| self.account.tenant()?.curve().or_raise())?;
        curve.map(|curve| named("Curve", &counters::of_curve(py, &curve)?)).transpose()
    }

    /// Lines for people: which I/O engine was chosen and why, how each file is read.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| Ok(self.account.budget.root()?.pager().report()))
    }

    /// Writes what is dirty, and lets the memory go when the last file of it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.account.budget.close().or_raise())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let spec = &self.account.budget.spec;
        let Spec { max, policy, page_size, .. } = spec;
        format!("lowtide.Pager(max={}, policy='{policy}', page_size={page_size})", max.bytes())
    }

    /// What another process needs to have a part of the budget.
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Passed)> {
        passed_on(py, &self.account)
    }
}

/// A tenant's name, and its limits in bytes.
type PlainStep = (String, [Option<u64>; 4]);

/// How a pager is built: budget, policy, page, swap, its folder, whether it is populated, whether
/// evicted pages may stay compressed, and whether it is on a shelf.
type PlainSpec = (u64, String, usize, Option<u64>, Option<PathBuf>, bool, bool, bool);

/// A pager or a tenant on its way to another process, the path under which it is shared, and the
/// tenant's place.
type Passed = (PlainSpec, PathBuf, Vec<PlainStep>);

fn passed_on(py: Python<'_>, account: &Account) -> PyResult<(Py<PyAny>, Passed)> {
    let make = py.import("lowtide._lowtide")?.getattr("shared_pager")?.unbind();
    let path = py.detach(|| account.budget.share());
    let spec = account.budget.spec.clone();
    // The list stays with this process.
    let Spec { max, policy, page_size, swap, swap_dir, populate, warm: _, zcache, on_shelf } = spec;
    let plain = |step: &Step| (step.name.clone(), step.limits.map(|size| size.map(Size::bytes)));
    let steps = account.place.steps.iter().map(plain).collect();
    let swap = swap.map(Size::bytes);
    let policy = policy.to_string();
    let spec = (max.bytes(), policy, page_size, swap, swap_dir, populate, zcache, on_shelf);
    Ok((make, (spec, path, steps)))
}

/// The pager, or the tenant, that another process has passed on. All that were passed on under one
/// path are one pager here.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments of Python")]
pub(crate) fn shared_pager(
    py: Python<'_>,
    spec: PlainSpec,
    path: PathBuf,
    steps: Vec<PlainStep>,
) -> PyResult<Py<PyAny>> {
    let (max, policy, page_size, swap, swap_dir, populate, zcache, on_shelf) = spec;
    let (max, swap, policy) = (Size::new(max), swap.map(Size::new), self::policy(&policy)?);
    let warm = None;
    let spec = Spec { max, policy, page_size, swap, swap_dir, populate, warm, zcache, on_shelf };
    let budget = Budget::shared(spec, path);
    if budget.is_closed() {
        return Err(PyValueError::new_err("the pager was closed in this process"));
    }
    let step =
        |(name, limits): PlainStep| Step { name, limits: limits.map(|at| at.map(Size::new)) };
    let place = Arc::new(Place { steps: steps.into_iter().map(step).collect() });
    let account = Account { budget, place };
    py.detach(|| account.tenant().map(drop))?;
    if account.place.steps.is_empty() {
        return Ok(Py::new(py, Pager { account })?.into_any());
    }
    Ok(Py::new(py, Tenant { account })?.into_any())
}

/// A budget within a budget.
#[pyclass(module = "lowtide", frozen, weakref)]
pub(crate) struct Tenant {
    pub(crate) account: Account,
}

#[pymethods]
impl Tenant {
    /// Its name.
    #[getter]
    fn name(&self) -> String {
        self.account.place.steps.last().map(|step| step.name.clone()).unwrap_or_default()
    }

    /// The pager that it is of.
    #[getter]
    fn pager(&self) -> Pager {
        let budget = Arc::clone(&self.account.budget);
        Pager { account: Account { budget, place: Arc::default() } }
    }

    /// Bytes that it is charged in this process.
    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.account.tenant()?.usage().or_raise())
    }

    /// Sets a limit of this process: pages above it are evicted before this returns. False: some
    /// are pinned or dirty, and leave later; until then nothing comes in.
    fn set_max(&self, py: Python<'_>, max: &Bound<'_, PyAny>) -> PyResult<bool> {
        let max = size(max)?;
        py.detach(|| self.account.tenant()?.set_max(max).or_raise().map(|is| is == Settled::Yes))
    }

    /// As `set_max`, for the limit above which a thread evicts before it goes on.
    fn set_high(&self, py: Python<'_>, high: &Bound<'_, PyAny>) -> PyResult<bool> {
        let high = size(high)?;
        py.detach(|| self.account.tenant()?.set_high(high).or_raise().map(|is| is == Settled::Yes))
    }

    /// Its limits in this process, in bytes; `None` where there is none.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let limits = py.detach(|| self.account.tenant()?.limits().or_raise())?;
        let bytes = |size: Size| (size != Size::MAX).then(|| size.bytes());
        let all = (limits.min.bytes(), limits.low.bytes(), bytes(limits.high), bytes(limits.max));
        results(py)?.getattr("Limits")?.call1(all)
    }

    /// Lets the limit set itself between two bounds, from now on.
    #[pyo3(signature = (least, most, *, target=0.01))]
    fn set_auto(
        &self,
        py: Python<'_>,
        least: &Bound<'_, PyAny>,
        most: &Bound<'_, PyAny>,
        target: f64,
    ) -> PyResult<()> {
        let limits = AutoLimits::new(size(least)?, size(most)?).with_target(target);
        py.detach(|| {
            let tenant = self.account.tenant()?;
            // It may start a thread.
            let _quiet = forks::quiet();
            tenant.set_auto(limits).or_raise()
        })
    }

    /// What became of such a limit, in bytes and seconds; `None` without one.
    fn auto<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = py.detach(|| self.account.tenant()?.auto().or_raise())?;
        found.map(|stat| named("AutoStat", &counters::of_auto(py, &stat)?)).transpose()
    }

    /// A tenant below this one.
    #[pyo3(signature = (name, *, min=None, low=None, high=None, max=None))]
    fn tenant(
        &self,
        py: Python<'_>,
        name: String,
        min: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
        high: Option<&Bound<'_, PyAny>>,
        max: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        self.account.make_tenant(py, name, [min, low, high, max])
    }

    /// Counters by the names of the kernel's `memory.stat`.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stat = py.detach(|| self.account.tenant()?.stat().or_raise())?;
        let counters = counters::of_memory(py, &stat)?;
        results(py)?.getattr("Stat")?.call1((counters,))
    }

    /// How much time is lost waiting for memory: shares of the time, and seconds.
    fn pressure<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pressure = py.detach(|| self.account.tenant()?.pressure().or_raise())?;
        named("Pressure", &counters::of_pressure(py, &pressure)?)
    }

    /// The budget in bytes with which nine tenths of the waiting would have been avoided.
    fn budget_for_stalls(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.account.tenant()?.budget_for_stalls().or_raise())
    }

    /// The smallest budget in bytes with which at most this share of the accesses misses, besides
    /// the first of each page. None before there was an access.
    #[pyo3(signature = (target = 0.02))]
    fn budget_for_misses(&self, py: Python<'_>, target: f64) -> PyResult<Option<u64>> {
        let advice = py.detach(|| self.account.tenant()?.budget_for_misses(target).or_raise())?;
        Ok(advice.map(|advice| advice.bytes))
    }

    /// How many accesses would miss at other sizes. None before there was an access.
    fn curve<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let curve = py.detach(|| self.account.tenant()?.curve().or_raise())?;
        curve.map(|curve| named("Curve", &counters::of_curve(py, &curve)?)).transpose()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.account.place.steps.iter().map(|s| &*s.name).collect();
        format!("<lowtide.Tenant {:?}>", names.join("/"))
    }

    /// See [`Pager::__reduce__`].
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Passed)> {
        passed_on(py, &self.account)
    }
}
