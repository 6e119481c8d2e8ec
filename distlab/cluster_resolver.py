"""`tf.distribute.cluster_resolver`: descriptions of clusters, from schedulers or from the program.

Each resolver has the tasks of the cluster (`cluster_spec()`), the task of this
process (`task_type`, `task_id`) and its accelerators (`num_accelerators()`).

Example:
  >>> import distlab as dl
  >>> from distlab.cluster_resolver import SimpleClusterResolver, UnionResolver
  >>> workers = SimpleClusterResolver(dl.ClusterSpec({"worker": ["a:2222", "b:2222"]}))
  >>> servers = SimpleClusterResolver(dl.ClusterSpec({"ps": ["c:2222"]}))
  >>> UnionResolver(workers, servers).cluster_spec().jobs
  ['worker', 'ps']
"""

from __future__ import annotations

from distlab.cluster.gce import GCEClusterResolver
from distlab.cluster.kubernetes import KubernetesClusterResolver, KubernetesExecutableLocation
from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.simple import SimpleClusterResolver
from distlab.cluster.slurm import SlurmClusterResolver
from distlab.cluster.spec import ClusterSpec
from distlab.cluster.tf_config import TFConfigClusterResolver
from distlab.cluster.tpu import TPUClusterResolver
from distlab.cluster.union import UnionResolver
from distlab.integrations.dask.resolver import DaskClusterResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "DaskClusterResolver",
    "GCEClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionResolver",
]
