// Package windows tests the pair's executables for Windows as a runtime calls
// them: the shipped calico.exe and calico-ipam.exe, under Wine, against the
// simulated Host Networking Service (windows/hnssim).
//
// The tests need Wine and mingw, and the build tag "wine"; "make test-windows"
// installs both and runs them. They prove how the executables call HNS, not how
// a real one answers.
package windows
