"""`tf.distribute.cluster_resolver`: descriptions of clusters, from wherever they come.

    config = TFConfigClusterResolver()        # the environment variable TF_CONFIG
    slurm = SlurmClusterResolver()            # the step that srun started
    fixed = SimpleClusterResolver(ClusterSpec({"worker": ["a:2222", "b:2222"]}))

Each says which tasks there are (`cluster_spec()`), which of them this process
is (`task_type`, `task_id`) and what it has (`num_accelerators()`).
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

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "GCEClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionResolver",
]
