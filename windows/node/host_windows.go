package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"calico-cni/windows/hns"
)

// Host is this host.
type Host struct{}

var _ hns.Host = Host{}

// Build implements hns.Host: the true number, whatever the program's manifest.
func (Host) Build() (int, error) { return int(windows.RtlGetVersion().BuildNumber), nil }

// Interfaces implements hns.Host.
func (Host) Interfaces() ([]hns.Interface, error) {
	listed, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	var out []hns.Interface
	for _, nic := range listed {
		addresses, err := nic.Addrs()
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of interface %s: %w", nic.Name, err)
		}
		found := hns.Interface{Index: nic.Index, Name: nic.Name, MAC: nic.HardwareAddr}
		for _, address := range addresses {
			if prefix, ok := prefixOf(address); ok {
				found.Addresses = append(found.Addresses, prefix)
			}
		}
		out = append(out, found)
	}
	return out, nil
}

func prefixOf(address net.Addr) (netip.Prefix, bool) {
	network, ok := address.(*net.IPNet)
	if !ok {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(network.IP)
	ones, _ := network.Mask.Size()
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, ones), ok && ip.Is4()
}

// The functions of the IP helper API that x/sys lacks.
func ipHelper(name string) *windows.LazyProc {
	return windows.NewLazySystemDLL("iphlpapi.dll").NewProc(name)
}

// invoke calls a function that takes one row and returns an error number.
func invoke(name string, row unsafe.Pointer) error {
	proc := ipHelper(name)
	if err := proc.Find(); err != nil {
		return err
	}
	if number, _, _ := proc.Call(uintptr(row)); number != 0 {
		return fmt.Errorf("%s: %w", name, windows.Errno(number))
	}
	return nil
}

func ipInterface(index int) (*windows.MibIpInterfaceRow, error) {
	row := &windows.MibIpInterfaceRow{Family: windows.AF_INET, InterfaceIndex: uint32(index)}
	if err := windows.GetIpInterfaceEntry(row); err != nil {
		return nil, fmt.Errorf("GetIpInterfaceEntry of interface %d: %w", index, err)
	}
	return row, nil
}

// Forwarding implements hns.Host.
func (Host) Forwarding(index int) (bool, error) {
	row, err := ipInterface(index)
	return err == nil && row.ForwardingEnabled != 0, err
}

// EnableForwarding implements hns.Host.
func (Host) EnableForwarding(index int) error {
	row, err := ipInterface(index)
	if err != nil {
		return err
	}
	row.ForwardingEnabled = 1
	row.SitePrefixLength = 0 // must be so for IPv4, whatever was read
	return invoke("SetIpInterfaceEntry", unsafe.Pointer(row))
}

// Routes implements hns.Host.
func (Host) Routes() ([]hns.HostRoute, error) {
	var table *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_INET, &table); err != nil {
		return nil, fmt.Errorf("GetIpForwardTable2: %w", err)
	}
	defer windows.FreeMibTable(unsafe.Pointer(table))
	persistent, err := persistentRoutes()
	if err != nil {
		return nil, err
	}
	var routes []hns.HostRoute
	for _, row := range table.Rows() {
		route := hns.HostRoute{
			Destination: netip.PrefixFrom(ipv4Of(&row.DestinationPrefix.Prefix), int(row.DestinationPrefix.PrefixLength)),
			Gateway:     ipv4Of(&row.NextHop), Interface: int(row.InterfaceIndex), Metric: row.Metric,
		}
		route.Persistent = persistent[persistentKey(route)]
		routes = append(routes, route)
	}
	return routes, nil
}

func ipv4Of(address *windows.RawSockaddrInet) netip.Addr {
	return netip.AddrFrom4((*windows.RawSockaddrInet4)(unsafe.Pointer(address)).Addr)
}

func setIPv4(address *windows.RawSockaddrInet, to netip.Addr) {
	*(*windows.RawSockaddrInet4)(unsafe.Pointer(address)) = windows.RawSockaddrInet4{Family: windows.AF_INET, Addr: to.As4()}
}

// routeByAdministrator is how routes that "route add" makes are marked.
const routeByAdministrator = 3 // MIB_IPPROTO_NETMGMT

// AddRoute implements hns.Host.
func (Host) AddRoute(route hns.HostRoute) error {
	var row windows.MibIpForwardRow2
	if err := ipHelper("InitializeIpForwardEntry").Find(); err != nil {
		return err
	}
	_, _, _ = ipHelper("InitializeIpForwardEntry").Call(uintptr(unsafe.Pointer(&row)))
	row.InterfaceIndex, row.Metric, row.Protocol = uint32(route.Interface), route.Metric, routeByAdministrator
	row.DestinationPrefix.PrefixLength = uint8(route.Destination.Bits())
	setIPv4(&row.DestinationPrefix.Prefix, route.Destination.Addr())
	setIPv4(&row.NextHop, route.Gateway)
	if err := invoke("CreateIpForwardEntry2", unsafe.Pointer(&row)); err != nil && !errors.Is(err, windows.ERROR_OBJECT_ALREADY_EXISTS) {
		return err
	}
	if !route.Persistent {
		return nil
	}
	return keepRoute(route)
}

// persistentRoutesKey is where Windows keeps the routes that come back after a
// boot: values named "<destination>,<mask>,<gateway>,<metric>".
const persistentRoutesKey = `SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\PersistentRoutes`

// persistentKey is the name of a route's value without the metric, which is
// written there as it was given.
func persistentKey(route hns.HostRoute) string {
	mask := net.IP(net.CIDRMask(route.Destination.Bits(), 32)).String()
	return route.Destination.Addr().String() + "," + mask + "," + route.Gateway.String()
}

func persistentRoutes() (map[string]bool, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, persistentRoutesKey, registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the registry's persistent routes: %w", err)
	}
	defer key.Close()
	names, err := key.ReadValueNames(0)
	if err != nil {
		return nil, fmt.Errorf("reading the registry's persistent routes: %w", err)
	}
	kept := map[string]bool{}
	for _, name := range names {
		if at := strings.LastIndex(name, ","); at >= 0 {
			kept[name[:at]] = true
		}
	}
	return kept, nil
}

// keepRoute makes a route persistent, if it is not already.
func keepRoute(route hns.HostRoute) error {
	kept, err := persistentRoutes()
	if err != nil || kept[persistentKey(route)] {
		return err
	}
	key, _, err := registry.CreateKey(registry.LOCAL_MACHINE, persistentRoutesKey, registry.SET_VALUE)
	if err != nil {
		return fmt.Errorf("opening the registry's persistent routes: %w", err)
	}
	defer key.Close()
	return key.SetStringValue(fmt.Sprintf("%s,%d", persistentKey(route), route.Metric), "")
}
