# Installs the plugins and their configuration on this Windows node, where no
# DaemonSet does it. All it does is to call "calico.exe install", whose settings
# are described in docs/install.md.
#
#   .\install.ps1 -ServiceCIDRs 10.96.0.0/12 -DNSServers 10.96.0.10
#   .\install.ps1 -Layout k -Template .\cni.conf.template ...
param(
    # Where the runtime looks for plugins: "containerd", or "k" for C:\k\cni.
    [ValidateSet('containerd', 'k')] [string] $Layout = 'containerd',
    # The folder with calico.exe and calico-ipam.exe.
    [string] $From = $PSScriptRoot,
    # The template; without one the built-in one.
    [string] $Template = '',
    [Parameter(Mandatory)] [string] $ServiceCIDRs,
    [Parameter(Mandatory)] [string] $DNSServers,
    [string] $Backend = 'vxlan',
    [string] $IPAM = 'calico-ipam',
    [string] $NodeName = ''
)
$ErrorActionPreference = 'Stop'

switch ($Layout) {
    'containerd' {
        $bin = "$env:ProgramFiles\containerd\cni\bin"
        $conf = "$env:ProgramFiles\containerd\cni\conf"
    }
    'k' {
        $bin = 'C:\k\cni'
        $conf = 'C:\k\cni\config'
    }
}
New-Item -ItemType Directory -Force -Path $bin, $conf | Out-Null

$env:SLEEP = 'false'
$env:CNI_NETWORK_CONFIG_FILE = $Template
$env:KUBERNETES_SERVICE_CIDRS = $ServiceCIDRs
$env:KUBERNETES_DNS_SERVERS = $DNSServers
$env:CALICO_NETWORKING_BACKEND = $Backend
$env:CNI_IPAM_TYPE = $IPAM
if ($NodeName) { $env:KUBERNETES_NODE_NAME = $NodeName }

& "$From\calico.exe" install -from $From -bin-dir $bin -conf-dir $conf
exit $LASTEXITCODE
